"""What the desktop bridge contract 2.2 demands, in our own words, and how far we are.

The form is that of `broker_requirements`. Tests are in `tests/desktop_host`, over the socket of a real host before real
windows, and in `tests/desktop_daemon`, through a real daemon; `test_requirements_table.py` holds the two
together.
"""

import ast
from pathlib import Path

from broker_requirements import Requirement, _marked, requirements

TESTS = [Path(__file__).resolve().parent.parent / folder for folder in ("desktop_host", "desktop_daemon")]

SPECIFICATION = """
DSK-0-1 must done
    The host alone has the permissions and touches accessibility and the screen.
DSK-0-2 must done
    What is done leaves its evidence in the workspace.
DSK-0-3 must done
    An act on the user interface without a confirmation is refused.
DSK-0-4 must done
    The client side decides, asks, serialises and keeps the audit.
DSK-1-1 must done
    Messages are JSON-RPC 2.0.
DSK-1-2 must done
    Messages are UTF-8; what is no request is refused.
DSK-1-3 must differs
    The host listens and clients connect to it by the name of its service.
    ~ A unix socket of mode 0600 in a private directory, or a socketpair to the daemon, in place of an XPC name.
DSK-1.1-1 must later
    On a Mac the connection is an NSXPCConnection with one method that takes and gives a string.
    ~ The messages are the same; docs/bridges/desktop-macos.md says what the listener needs.
DSK-1.2-1 must differs
    One message is one request or one response; the transport keeps them apart.
    ~ Content-Length frames do what XPC does by itself.
DSK-2.1-1 must done
    The host reads WORKSPACE_ROOT when it starts.
DSK-2.1-2 must done
    The real path of a request's workspace lies within the real path of the root.
DSK-2.1-3 must done
    Otherwise the answer is DESKTOP_WORKSPACE_FORBIDDEN.
DSK-2.2-1 must done
    Evidence lies in artifacts/desktop, by day and execution.
DSK-2.2-2 must done
    A screenshot is observe.png and a tree is ax.json.
DSK-2.2-3 may done
    trace.jsonl is the host's own account, result.json the structured result.
DSK-3.1-1 must done
    A request has jsonrpc, id, method and params, the meta among them.
DSK-3.2-1 must done
    A success has jsonrpc, id and result.
DSK-3.3-1 must done
    An error has a code, a message, whether to try again, and details.
DSK-4.1-1 must done
    Every method takes a meta with schemaVersion, requestId and workspacePath.
DSK-4.1-2 must done
    The meta says how long the request may take.
    ~ 60 seconds where it does not.
DSK-4.2-1 must done
    click, typeText and hotkey take a confirm.
DSK-4.2-2 must done
    A token goes before a phrase: a wrong token is not saved by a right phrase.
DSK-4.2-3 must done
    A token is checked for its peer, its method and the digest of the parameters.
DSK-4.2-4 must done
    A token is checked for its time.
DSK-4.2-5 must done
    A token is good once.
DSK-4.2-6 must done
    Without a token the phrase is CONFIRM, alone or with the requestId; approvedAt and approver may stand beside it.
DSK-4.2-7 must done
    Whatever fails in a confirmation is DESKTOP_CONFIRM_REQUIRED.
DSK-4.2-8 must done
    find, waitUntil and abort need no confirm.
DSK-4.3-1 must done
    A route names an app, a window by a pattern of its title, and when to take the focus.
DSK-4.3-2 must done
    Without a route the frontmost app is meant.
DSK-4.4-1 must done
    A selector compares the role exactly, title and value by what they contain.
DSK-4.4-2 must done
    The search begins at the root of the app and does not leave it.
DSK-4.4-3 must done
    At most `limit` candidates are given, ten unless said otherwise.
DSK-4.5-1 must done
    An elementRef has an id, a fingerprint, role, title, value and a frame on the screen.
DSK-4.5-2 should done
    A fingerprint finds a stale element again.
DSK-5.1-1 must done
    health says the host's version, permissions, schema version and who the peer is.
DSK-5.1-2 must differs
    health says the version of macOS.
    ~ null elsewhere, with `platform` beside it.
DSK-5.2-1 must done
    doctor says of each permission whether it is granted, required, and what for, and who the peer is.
DSK-5.2-2 must done
    doctor lists what is wrong, and whether all is well.
DSK-5.3-1 must done
    observe takes a picture and a bounded tree and writes both.
DSK-5.3-2 must done
    observe answers with the executionId, the app and title it looked at, and the evidence.
DSK-5.3-3 must done
    Picture and tree can be left out.
DSK-5.3-4 must done
    The tree ends at axMaxDepth and axMaxNodes.
DSK-5.3-5 must done
    Unless said otherwise both are taken, to a depth of 8 and 2000 nodes.
DSK-5.4-1 must done
    find answers with elementRefs, how many matched, and the tree as evidence; nothing is clicked.
DSK-5.4-2 must done
    find looks through all descendants and filters them by the selector.
DSK-5.4-3 must done
    Nothing found is an empty list.
DSK-5.5-1 must done
    click takes an elementRef or a selector.
DSK-5.5-2 must done
    click answers with executionId, clicked and the evidence.
DSK-5.5-3 must done
    click without a confirm is DESKTOP_CONFIRM_REQUIRED.
DSK-5.5-4 must differs
    The element's own press action is used; without one the click fails.
    ~ Without one the pointer is used, after a hit test finds the same element; `method` says which it was.
DSK-5.5-5 must done
    A target that is not there is DESKTOP_ELEMENT_NOT_FOUND.
DSK-5.5-6 must done
    A failure of the accessibility interface is DESKTOP_INTERNAL_ERROR with a message.
DSK-5.6-1 must done
    typeText types a text, into a target if one is given.
DSK-5.6-2 must done
    typeText answers with executionId, typed and the evidence.
DSK-5.6-3 must done
    The text goes by the clipboard and a paste.
    ~ On Wayland the field's own program is asked first, and what it did is read back.
DSK-5.6-4 must differs
    The target is given the focus first; if that fails, the paste happens all the same.
    ~ A click is tried then; no paste where another field is known to have the focus, or another window.
DSK-5.6-5 must done
    typeText without a confirm is DESKTOP_CONFIRM_REQUIRED, with an unknown target DESKTOP_ELEMENT_NOT_FOUND.
DSK-5.6-6 may done
    What is in the field may be cleared first.
DSK-5.6-7 may done
    A target may have an elementRef and a selector: the ref is tried first.
DSK-5.7-1 must done
    hotkey presses the keys of a list together.
DSK-5.7-2 must done
    hotkey answers with executionId, sent and the evidence.
DSK-5.7-3 may done
    A pause between the keys may be given.
DSK-5.7-4 must differs
    At least cmd v, enter and cmd enter are known, by the Mac's key codes.
    ~ `cmd` is Ctrl here, where that key means the same; `super` is the real one. All common keys have names.
DSK-5.8-1 must done
    waitUntil ends when an element that a selector describes is there.
DSK-5.8-2 must done
    waitUntil answers with ok, how many matched, how long it took, and the tree as evidence.
DSK-5.8-3 must done
    When its time is over the answer is DESKTOP_TIMEOUT.
DSK-5.8-4 must done
    timeoutMs must be given and is a hard limit.
DSK-5.8-5 must done
    The poll is every 500 ms unless said otherwise.
    ~ A net only: a change wakes the wait by itself.
DSK-5.9-1 must differs
    abort takes an executionId and answers with it.
    ~ Or the requestId: a client learns the executionId only from the answer that it wants to prevent.
DSK-5.9-2 must done
    The request that was aborted answers DESKTOP_ABORTED as soon as it can.
DSK-5.9-3 must done
    After an abort no further key or button is sent.
DSK-5.9-4 must done
    What has ended is DESKTOP_INVALID_REQUEST.
DSK-5.10-1 must done
    confirm.issue takes the method and the parameters that are meant, and a time.
DSK-5.10-2 must done
    The token is a random UUID of version 4.
DSK-5.10-3 must done
    paramsDigest is the beginning, 16 hex digits, of SHA-256 over the canonical JSON.
    ~ Without `meta` and `confirm`; the whole digest is compared.
DSK-5.10-4 must done
    The answer names token, expiry, scope and the peer it is bound to.
DSK-5.10-5 must done
    A token is consumed by its use; a second use is DESKTOP_CONFIRM_REQUIRED.
DSK-5.10-6 must done
    A token lives for 60 seconds unless said otherwise.
DSK-6-1 must done
    DESKTOP_HOST_NOT_READY while the host is starting; the call may be tried again.
DSK-6-2 must done
    DESKTOP_PERMISSION_MISSING without accessibility or screen.
DSK-6-3 must done
    DESKTOP_WORKSPACE_FORBIDDEN for a workspace outside the root.
DSK-6-4 must done
    DESKTOP_CONFIRM_REQUIRED for an act without confirm.
DSK-6-5 must done
    DESKTOP_ELEMENT_NOT_FOUND for a selector without a hit.
DSK-6-6 must done
    DESKTOP_TIMEOUT when a wait or an observation takes too long; the call may be tried again.
DSK-6-7 must done
    DESKTOP_ABORTED for what was aborted.
DSK-6-8 must done
    DESKTOP_INTERNAL_ERROR for what nobody foresaw.
DSK-6-9 must done
    DESKTOP_INVALID_REQUEST for a request of the wrong form.
DSK-7-1 must done
    schemaVersion is 1; another one is not spoken.
DSK-7-2 must done
    health says the schema version.
"""

REQUIREMENTS: dict[str, Requirement] = requirements(SPECIFICATION)


def proofs() -> dict[str, list[str]]:
    """Which tests name which requirement, read from the source: `file::test`."""
    found: dict[str, list[str]] = {}
    for file in sorted(each for folder in TESTS for each in folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for name in _marked(node):
                    found.setdefault(name, []).append(f"{file.name}::{node.name}")
    return found
