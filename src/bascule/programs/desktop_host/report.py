"""`bascule desktop report`: what an execution did, as one HTML page that needs nothing else.

What is in the evidence came from windows, which anybody may have drawn: all of it is text here, and the page may load
and run nothing. And it lies in a workspace, where others may write: what is not as the host left it is said to be so.
"""

import base64
import hashlib
import html
import os
import re
from typing import Any, Final

from bascule.desktop.protocol import MAX_AX_DEPTH
from bascule.foundation.text import visible
from gabp import codec

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
MAX_EVIDENCE_BYTES: Final = 64 * 1024 * 1024
# What a file that somebody else wrote may raise.
_BROKEN: Final = (codec.BadJson, KeyError, TypeError, ValueError, AttributeError)
_PICTURES: Final = (
    ("before.png", "Before; the target is marked"),
    ("after.png", "After"),
    ("observe.png", "Observed"),
    ("marks.png", "Numbered"),
)

_MAY_LOAD: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.4rem} h2{font-size:1.1rem;margin-top:2rem} code,td,pre{font-family:ui-monospace,monospace;font-size:13px}
img{max-width:100%;border:1px solid #bbb} figure{margin:1rem 0} figcaption{color:#555}
table{border-collapse:collapse} td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
.ok{color:#06631f} .bad{color:#a40000} .off{color:#888}
@media (prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd} figcaption{color:#aaa} .ok{color:#7fd18b}
 .bad{color:#ff8a80}}
"""


class NoSuchExecution(Exception):
    """There is no evidence of it in this workspace."""


def find_folder(workspace: str, execution_id: str) -> str:
    if not _ID.match(execution_id):
        raise NoSuchExecution(f"{execution_id!r} is not an executionId")
    desktop = os.path.join(workspace, "artifacts", "desktop")
    days = sorted(filter(_DAY.match, os.listdir(desktop)), reverse=True) if os.path.isdir(desktop) else []
    for day in days:
        folder = os.path.join(desktop, day, execution_id)
        if os.path.isfile(os.path.join(folder, "result.json")):
            return folder
    raise NoSuchExecution(f"no evidence of {execution_id} in {desktop}: it is another workspace's, or was rotated away")


def page(folder: str) -> str:
    try:
        # Whatever else it is, it has a method.
        result = _json(folder, "result.json")
        return _page(folder, {**result, "method": result["method"]})
    except _BROKEN:
        raise NoSuchExecution(f"{os.path.join(folder, 'result.json')} is not what the host wrote") from None


def _page(folder: str, result: dict[str, Any]) -> str:
    error = result.get("error")
    outcome = f'<span class="bad">{_t(error["code"])}</span>' if error else '<span class="ok">ok</span>'
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f'<meta http-equiv="Content-Security-Policy" content="{_MAY_LOAD}">',
        f"<title>{_t(result.get('method'))} {_t(result.get('executionId'))}</title><style>{_STYLE}</style>",
        f"<h1>{_t(result.get('method'))}: {outcome}</h1>",
        _facts(result),
        _changed(folder, result),
    ]
    for name, caption in _PICTURES:
        if (data := _read(folder, name)) is not None:
            source = base64.b64encode(data).decode()
            parts.append(
                f'<figure><img alt="{_t(caption)}" src="data:image/png;base64,{source}">'
                f"<figcaption>{_t(caption)} ({name})</figcaption></figure>"
            )
    for name, part in (("trace.jsonl", _timeline), ("ax.json", _tree)):
        try:
            parts.append(part(folder))
        except _BROKEN:
            parts.append(f'<p class="bad">{name} is not what the host wrote.</p>')
    parts.append("</html>")
    return "\n".join(parts)


def _facts(result: dict[str, Any]) -> str:
    rows = [("Execution", result.get("executionId")), ("Request", result.get("requestId")), ("At", result.get("at"))]
    rows += [("Took", f"{result.get('ms')} ms"), ("Process", (result.get("peer") or {}).get("pid"))]
    rows += [("For", result.get("client"))]
    if error := result.get("error"):
        rows += [("Error", error.get("message"))]
    done = result.get("result") or {}
    for name in ("effect", "method", "clipboard", "matched", "clicked", "typed", "sent", "nodes", "partial"):
        if done.get(name) not in (None, []):
            rows.append((name, done[name]))
    lines = "".join(f"<tr><th>{_t(name)}<td>{_t(value)}" for name, value in rows if value is not None)
    return f"<table>{lines}</table>"


def _changed(folder: str, result: dict[str, Any]) -> str:
    """By the digests that the host took when it wrote them; the index has that of result.json."""
    now = {name: hashlib.sha256(_read(folder, name) or b"").hexdigest() for name in result.get("files") or {}}
    changed = [name for name, digest in (result.get("files") or {}).items() if now[name] != digest]
    if not changed:
        return ""
    return f'<p class="bad">Changed since the host wrote it: {_t(", ".join(changed))}</p>'


def _timeline(folder: str) -> str:
    data = _read(folder, "trace.jsonl")
    if not data:
        return ""
    rows = []
    for line in data.splitlines():
        step = codec.decode(line)
        rest = {name: value for name, value in step.items() if name not in ("ms", "step")}
        words = " ".join(f"{name}={value}" for name, value in rest.items())
        rows.append(f"<tr><td>{_t(step.get('ms'))} ms<td>{_t(step.get('step'))}<td>{_t(words)}")
    return f"<h2>Timeline</h2><table>{''.join(rows)}</table>"


def _tree(folder: str) -> str:
    tree = _json(folder, "ax.json")
    if not tree:
        return ""
    lines = []
    for node in tree["nodes"]:
        words = f"{'  ' * min(node['depth'], MAX_AX_DEPTH)}{node['role']}"
        if node.get("title"):
            words += f' "{node["title"]}"'
        if node.get("value"):
            words += f" = {node['value']}"
        style = "" if node.get("visible") else ' class="off"'
        lines.append(f"<span{style}>{_t(words)}</span>")
    note = f" (not complete: {_t(', '.join(tree['partial']))})" if tree.get("partial") else ""
    head = f"<h2>Elements{note}</h2><p>{_t(tree.get('bundleId'))}: {_t(tree.get('window'))}"
    return f"{head}; grey was not visible.</p><pre>{chr(10).join(lines)}</pre>"


def _t(value: Any) -> str:
    """Text of a window in a page: escaped, and with what could act on a reader made visible."""
    text = "" if value is None else str(value)
    return html.escape(visible(text))


def _read(folder: str, name: str) -> bytes | None:
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_EVIDENCE_BYTES)


def _json(folder: str, name: str) -> Any:
    data = _read(folder, name)
    return None if data is None else codec.decode(data)
