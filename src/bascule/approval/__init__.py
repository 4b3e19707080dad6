"""Consent: a question to the person, the grant that an answer is, and the desk where both meet.

May import `policy`, `audit`, `identity` and what is right of them.
"""
