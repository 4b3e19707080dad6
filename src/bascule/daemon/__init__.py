"""The process: configuration, composition, doors, life and death.

`compose` is the only place that picks implementations; `lifecycle` starts and stops what it made.
"""
