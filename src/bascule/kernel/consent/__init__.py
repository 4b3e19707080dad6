"""Consent: a question to the person, the grant that an answer is, and the desk where both meet.

May import `kernel.policy`, `kernel.journal`, `kernel.rows` and what is below them; never the gate.
"""
