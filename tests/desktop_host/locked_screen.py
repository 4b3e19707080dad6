"""Says on the session bus that the screen is locked, until its standard input ends."""

import asyncio
import sys

from dbus_fast import Message
from dbus_fast.aio import MessageBus


async def main():
    bus = await MessageBus().connect()

    def answer(message):
        if message.member == "GetActive":
            return Message.new_method_return(message, "b", [True])
        return None

    bus.add_message_handler(answer)
    await bus.request_name("org.freedesktop.ScreenSaver")
    sys.stdout.write("locked\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
