"""Who is calling: from the door and the token presented there, never from a payload (invariant I3).

May import `kernel.rows`, `kernel.call`, `foundation`. `principals` holds the whole table of doors, `tokens` what an
agent proves itself with, `passphrase` what the person does.
"""
