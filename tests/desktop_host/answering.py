"""Has a name on the session bus and answers one question there, until its standard input ends: NAME MEMBER VALUE."""

import asyncio
import json
import sys

from dbus_fast import Message
from dbus_fast.aio import MessageBus

NAME, MEMBER, VALUE = sys.argv[1:]


async def main():
    bus = await MessageBus().connect()
    value = json.loads(VALUE)

    def answer(message):
        if message.member == MEMBER:
            return Message.new_method_return(message, "b" if isinstance(value, bool) else "u", [value])
        return None

    bus.add_message_handler(answer)
    await bus.request_name(NAME)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
