"""What the daemon and every program that talks to it agree on before they talk.

The helpers load this at their start, so it imports nothing.
"""

# -- doors --

# The TCP port unless a setting says otherwise, as the broker spec's examples have it.
DEFAULT_PORT = 5050
# Of the web console, on localhost.
DEFAULT_CONSOLE_PORT = 5051

# Raised when a frame, a method's shape or a meaning changes so that old peers would misread it. The daemon refuses
# another number and says what to do.
PROTOCOL_VERSION = 1
# A payload of 1 MiB with JSON escapes and envelope around it.
MAX_LINK_FRAME_BYTES = 8 * 1024 * 1024
# Past this an idle proxy or client library gives up by itself; a longer waitMs is clamped to it.
MAX_WAIT_MS = 60_000

# -- ids: they travel in URLs, file names, log lines and terminals, so no letter of them needs quoting in any --

# Long enough for `claude-code-some-project-2`, short enough for a table column.
MAX_AGENT_ID_CHARS = 64
# A UUID with a readable prefix fits; so does the `<broadcastId>.<agentId>` of a broadcast.
MAX_TICKET_ID_CHARS = 128
# "." and ".." are path steps in URLs and file systems; "local", "person" and "daemon" are principals of ours, "bascule"
# is who messages of the house seem to be from, and "register" is a path of the broker spec's (5.0).
RESERVED_AGENT_IDS = frozenset({".", "..", "local", "person", "daemon", "bascule", "register"})
# Of a machine in the mesh: one token of a NATS subject.
MAX_NODE_CHARS = 32
_NODE_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_ID_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
# Letters that look like others in many fonts.
_LOOKS_LIKE = str.maketrans("01i", "oll")


def _shape(text: str) -> str:
    return text.lower().strip("._-").translate(_LOOKS_LIKE)


_RESERVED_SHAPES = frozenset(_shape(name) for name in RESERVED_AGENT_IDS) - {""}


def passes_for_reserved(text: str) -> bool:
    """Whether a reader may take it for a name that is nobody's: `PERSON`, `l0cal`, `_daemon`."""
    return text in RESERVED_AGENT_IDS or _shape(text) in _RESERVED_SHAPES


def is_agent_id(text: str) -> bool:
    return 0 < len(text) <= MAX_AGENT_ID_CHARS and _ID_LETTERS.issuperset(text) and not passes_for_reserved(text)


def is_target(text: str) -> bool:
    """Somebody a message can be addressed to: an agent here, or behind an `@` one on another machine."""
    handle, at, node = text.partition("@")
    return is_agent_id(handle) and (not at or is_node(node))


def is_node(text: str) -> bool:
    return 0 < len(text) <= MAX_NODE_CHARS and _NODE_LETTERS.issuperset(text) and text[0] != "-"


def is_ticket_id(text: str) -> bool:
    return 0 < len(text) <= MAX_TICKET_ID_CHARS and _ID_LETTERS.issuperset(text) and text not in (".", "..")
