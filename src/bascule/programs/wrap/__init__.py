"""`bridge-wrap`: an agent's program in a terminal of its own, its person in front, the broker behind.

The person's keys and the program's screen pass through untouched; the wrapper adds itself only between the two, when
both are still. `keyboard`, `output`, `moments` and `ringing` decide without a terminal; `child`, `outer` and `session`
are the terminals; `post` is the broker's side.

May import `client`, `helpers`, `doors`, `terminals` and what they may.
"""
