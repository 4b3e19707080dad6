"""`bridge-wrap`: an agent's program in a terminal of its own, its person in front, the broker behind.

The person's keys and the program's screen pass through untouched; the wrapper adds itself only between the two, when
both are still. `keyboard`, `output`, `readiness` and `ringing` decide without a terminal; `child`, `host_terminal` and
`session` are the terminals; `broker_link` is the broker's side.

May import `client`, `programs.helpers`, `local_client`, `terminals` and what they may.
"""
