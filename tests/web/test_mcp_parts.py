"""Parts of `/mcp` before a client can reach them: the mount without its SDK, the SDK's log."""

import asyncio
import json
import logging

import pytest

from bascule.foundation.errors import Unavailable
from bascule.kernel.call import LOCAL
from bascule.surfaces.mcp import sdk_log
from bascule.surfaces.mcp.mount import Mount


def test_before_the_sdk_is_there_the_answer_says_to_try_again():
    mount = Mount(None, None, tools=(), trust="peer")

    async def nothing(*_):
        raise AssertionError("there is nobody to answer")

    with pytest.raises(Unavailable) as refused:
        asyncio.run(mount(LOCAL, {}, b"", nothing, nothing))
    assert refused.value.retry_after


def test_the_sdk_speaks_into_the_daemons_log_without_what_clients_said(monkeypatch):
    for name in sdk_log.NAMES:
        for attribute in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logging.getLogger(name), attribute, getattr(logging.getLogger(name), attribute))
    lines = []
    sdk_log.listen(lambda event, **fields: lines.append((event, fields)))
    logger = logging.getLogger("mcp.server.somewhere")
    try:
        int("the client's secret")
    except ValueError:
        logger.exception("handler for %r failed", "the client's secret")
    logger.warning(f"built with {'the client' + chr(39) + 's secret'}")  # noqa: G004 - as the SDK does
    logger.info("not worth a line")
    assert [event for event, _ in lines] == ["mcp_sdk", "mcp_sdk"]
    assert lines[0][1]["said"] == "handler for %r failed"
    assert lines[0][1]["error"] == "ValueError"
    assert lines[0][1]["at"].startswith(__name__)
    assert "secret" not in json.dumps(lines)
