"""A tool driven by hand: what it calls is written down, and each call gets the next answer of the test."""

from typing import Any, NamedTuple

from bascule.foundation.errors import ALL_ERRORS
from bascule.surfaces.mcp.calling import call_tool
from bascule.surfaces.mcp.tools import tools_of, toolsets_of
from gabp import codec

BY_NAME = {tool.name: tool for tool in tools_of(toolsets_of())}


class Asked(NamedTuple):
    method: str
    params: dict[str, Any]
    wait_ms: int | None


class Me:
    """A session without a daemon."""

    def __init__(self, handle="Jerry", *, directory=None, trust="peer", default_timeout_ms=None):
        self.handle = handle
        self.call_id = "0190-call"
        self.slice_ms = 45_000
        self.form = None
        self.trust = trust
        self.default_timeout_ms = default_timeout_ms
        self.directory = directory
        # Not while everything is stopped.
        self.stopped = None


class Script(Me):
    """Runs a tool's function with these answers; an exception among them is raised by the call."""

    def __init__(self, name, arguments, *answers, me=None, whole=False):
        """`whole`: with what is done around every tool."""
        me = me or Me()
        self.__dict__.update(me.__dict__)
        self.asked = []
        self.became = []
        self._answers = list(answers)
        tool = BY_NAME[name]
        work = call_tool(self, tool, arguments) if whole else tool.run(self, codec.convert(arguments, tool.arguments))
        try:
            work.send(None)
        except StopIteration as stop:
            self.result = stop.value
        else:
            raise AssertionError("the tool waits for something that is not a call")

    @property
    def methods(self):
        return [asked.method for asked in self.asked]

    async def call(self, method, params, *, wait_ms=None):
        self.asked.append(Asked(method, dict(params), wait_ms))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def become(self, wanted):
        self.became.append(wanted)
        return self._answers.pop(0)


def refusal(code, message="no", **more):
    """The error that the gate answers with."""
    kind = next(each for each in ALL_ERRORS if each.code == code)
    return kind(message, **more)
