"""What the Agent Spaces protocol 1.0 demands, in our own words, and how far we are; same form as for the broker.

Every sentence, field and example that asks for something has an entry `ASP-<section>-<n>`; what we decided where
the specification is silent is `DEC-ASP-<n>`. Tests name entries with `@pytest.mark.req(...)`.
"""

from broker_requirements import Requirement, proofs, requirements

__all__ = ["REQUIREMENTS", "SECTIONS", "Requirement", "proofs"]

# The specification's headings, in order, as the ids abbreviate them.
SECTIONS = {
    "version": "Overview and protocol version",
    "message": "The operations message",
    "op": "Operation types",
    "result": "The events message",
    "event": "Event types",
    "category": "Error categories",
    "path": "Path validation",
    "validation": "Validation",
}

SPECIFICATION = """
ASP-version-1 must done
    Messages are JSON with a fixed set of operations and events.
ASP-version-2 must done
    The current version is 1.0.
ASP-version-3 must done
    Every message includes the protocol version.
ASP-message-1 must done
    An agent sends an object with the protocol version and a list of operations.
ASP-message-2 must done
    A message may hold operations of different types, carried out one after the other.
ASP-op-1 must done
    A message operation tells intent or progress and executes nothing.
ASP-op-2 must done
    It has a type and a content, both required, and may have an id for correlation.
ASP-op-3 must done
    createFile creates a file in the workspace.
ASP-op-4 must done
    It requires a relative path and a content.
ASP-op-5 must done
    Its content is UTF-8 text unless its encoding says base64.
ASP-op-6 must done
    It overwrites an existing file only when told to; the default is not to.
ASP-op-7 must done
    readFile reads a file from the workspace and requires its path.
ASP-op-8 must done
    The answer's encoding is UTF-8 unless base64 is asked for.
ASP-op-9 must done
    editFile applies edits to a file that exists; path and edits are required.
ASP-op-10 must done
    An edit names the content to find and the content to put in its place.
ASP-op-11 must done
    deleteFile deletes a file from the workspace and requires its path.
ASP-op-12 must done
    shell executes a command, which is required.
ASP-op-13 must done
    It runs in the workspace itself unless a working directory is given.
ASP-op-14 must done
    It may run for 30 seconds unless a timeout in milliseconds is given.
ASP-op-15 must done
    It gets the environment variables that are given besides its own.
ASP-result-1 must done
    The runtime answers with the protocol version, the run's id, a status and a list of events.
ASP-result-2 must done
    The status is completed, awaiting_approval or error.
    ~ Callers who say how long they wait (`waitMs`) may also see `running`.
ASP-event-1 must done
    A message is acknowledged with success, a timestamp and its operation's id.
ASP-event-2 must done
    createFile tells the path and the number of bytes written.
ASP-event-3 must done
    A createFile that failed says why; for an existing file the words are `File already exists`.
ASP-event-4 must done
    readFile tells the content, its encoding and its size.
ASP-event-5 must done
    editFile tells how many edits were applied.
ASP-event-6 must done
    deleteFile tells the path that is gone.
ASP-event-7 must done
    shell tells the command, the exit code, both outputs and how long it took.
ASP-event-8 must done
    A command that ran too long is told with timedOut, exit code 124 and its duration.
ASP-event-9 must done
    approvalRequired says that execution paused: which operation, why, and by which policy.
ASP-event-10 must done
    The default policy asks before a recursive forced delete, in the words of the specification.
ASP-event-11 must done
    policyDenied says that the policy blocked an operation, why, and what to do instead.
ASP-event-12 must done
    The default policy blocks sudo, in the words of the specification.
ASP-event-13 must done
    error tells a category, a message and details.
ASP-event-14 must done
    Timestamps are UTC in the form of RFC 3339.
    ~ With milliseconds, where the examples show whole seconds.
ASP-category-1 must done
    `validation` is an operation, or a message, that has not the right form.
ASP-category-2 must differs
    `policy` is a violation of the policy.
    ~ What a rule says about one operation is policyDenied; a limit of the policy outside of one (too many questions at
    ~ once) is told in that form too, so no error of ours has this category yet.
ASP-category-3 must done
    `execution` is a failure of what executes.
ASP-category-4 must done
    `timeout` is an operation or run that took too long.
    ~ For the run's own limit; a single command that took too long has its shell event.
ASP-category-5 must done
    `system` is a fault of the system.
ASP-path-1 must done
    A path is relative.
ASP-path-2 must done
    A path has no step to the parent directory.
    ~ `..` as a step; `a..b` is a name like any other.
ASP-path-3 must done
    A path has no null byte.
ASP-path-4 must done
    A path has at most 255 characters.
ASP-validation-1 must done
    There are functions that validate an operation and a message and return success with data or error.
ASP-validation-2 must done
    There is a function that parses an operation and throws on invalid input.
"""

_DECIDED: dict[str, str] = {
    "Runs": """
DEC-ASP-1 must done
    An operation that fails does not stop the rest; the run is completed when every operation has its event.
DEC-ASP-2 must done
    Every operation gets exactly one event, with timestamp and operationId, also when it fails.
DEC-ASP-3 must done
    Operations without an id are called op-1, op-2, ... by their place; two with the same id make a message invalid.
DEC-ASP-4 must done
    A run that is cancelled or cannot be carried through has status error.
DEC-ASP-5 must done
    shell succeeds when the exit code is 0.
DEC-ASP-6 must done
    Runs that change a space take turns; runs that only read do not wait.
DEC-ASP-7 must done
    A caller that waits without waitMs takes its run along when it leaves; with waitMs the run lives by itself.
DEC-ASP-8 must done
    A run that was under way when the daemon died is told as unknown, and is never carried out again by itself.
""",
    "Faults": """
DEC-ASP-9 must done
    A message that is none is answered 400 over HTTP, with an events message of status error and one validation error.
DEC-ASP-10 must done
    A bad operation gets one validation error that names field and reason, and the others run.
DEC-ASP-11 must done
    Without a sandbox a command is an execution error that says what to do, unless the setting allows none.
""",
    "Approval": """
DEC-ASP-12 must done
    A person answers a paused run at its resume address with operationId, decision and reason; nobody else may.
DEC-ASP-13 must done
    Approved, exactly that operation is carried out once, then the rest; denied, it is policyDenied, then the rest.
DEC-ASP-14 must done
    An approval is bound to operation, policy and the scripts it runs; when one changed, it is asked anew.
DEC-ASP-15 must done
    A paused run survives a restart of the daemon.
""",
    "Files": """
DEC-ASP-16 must done
    Backslashes, drive letters and empty paths are refused; a link that leaves the workspace is refused when opened.
DEC-ASP-17 must done
    Parent directories are made; deleteFile deletes no directories.
DEC-ASP-18 must done
    A file that is not UTF-8 is read as base64 only; sizes are bytes.
DEC-ASP-19 must done
    oldContent must stand exactly once, and all edits of an operation apply or none.
""",
    "Commands": """
DEC-ASP-20 must done
    A command runs with `sh -c` in a sandbox without network, with nothing to read from its standard input.
DEC-ASP-21 must done
    Limits: 4096 characters of command, 10 MiB of content, 100 000 characters of message, an hour of timeout.
DEC-ASP-22 must done
    Of long output head and tail are told, marked truncated; all of it is found under the process id.
DEC-ASP-23 must done
    On timeout what was said so far is kept, and no process is left.
""",
}

_SECTION_OF = {
    line.split()[0]: group
    for group, text in _DECIDED.items()
    for line in text.splitlines()
    if line and not line.startswith(" ")
}

REQUIREMENTS: dict[str, Requirement] = {
    **requirements(SPECIFICATION),
    **requirements("".join(_DECIDED.values()), _SECTION_OF),
}
