"""What `bascule doctor` looks at, one function per line of its report.

    patient   what is looked at, the limits, and what a check may answer
    daemon    our own things: the state directory, sockets, the daemon, its port and token, the person
    machine   the machine below: Python, SQLite, disk, memory, PATH, clock

A bridge's own checks lie with its commands (`Declared.checked_by`).

They must work where the daemon does not, so they need the standard library and the helpers' doors only.
"""
