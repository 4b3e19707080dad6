"""The bridge-* commands: what an agent runs in its shell to register, receive, reply and send.

Standard library only, over `bascule.doors`. Each command imports itself when it is called, so that
`bridge-reply` does not pay for `bridge-send`. `terminal` is also bridgectl's.
"""


def bridge_register() -> int:
    from bascule.helpers import program, register  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-register", register.main)


def bridge_reply() -> int:
    from bascule.helpers import program, reply  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-reply", reply.main)


def bridge_recv() -> int:
    from bascule.helpers import program, recv  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-recv", recv.main)


def bridge_send() -> int:
    from bascule.helpers import program, send  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-send", send.main)
