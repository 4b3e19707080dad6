"""Entry points of the bridge-* commands; each imports itself when it is called."""


def bridge_register() -> int:
    from bascule.programs.helpers import program, register  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-register", register.main)


def bridge_reply() -> int:
    from bascule.programs.helpers import program, reply  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-reply", reply.main)


def bridge_recv() -> int:
    from bascule.programs.helpers import program, recv  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-recv", recv.main)


def bridge_send() -> int:
    from bascule.programs.helpers import program, send  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-send", send.main)


def bridge_wait() -> int:
    from bascule.programs.helpers import program, wait  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-wait", wait.main)


def bridge_native() -> int:
    from bascule.programs.helpers import native, program  # noqa: PLC0415 - each command pays for itself only

    return program.run("bridge-native", native.main)
