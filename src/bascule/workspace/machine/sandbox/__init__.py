"""Commands in a sandbox: implements `workspace.ports.Sandboxes` with bubblewrap, or with nothing.

A **cell** is one bwrap with our spawner as its first process (`spawner.py`); it runs one command at a time, so
"everything this command started" is everything in the cell but the spawner. A space keeps a few cells warm.
`layout.py` says what a cell sees, `cell.py` drives one, `space.py` is the port's `Sandbox`, `sandboxes.py` the
way in. `supervisor.py` decides over programs as they are executed.
"""
