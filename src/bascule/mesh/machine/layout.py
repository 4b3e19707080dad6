"""What the mesh has on NATS, by name: one stream of letters, three boards, and what a node may do with them.

Live letters go to `bsc.l.<dest>.<src>`, mail to `bsc.m.<dest>.<src>`, requests to join to `bsc.j.<node>`. A node reads
a stream by a consumer with its own name: permissions match whole tokens, so nothing shorter than a name can be allowed.
No I/O.
"""

from typing import Any, NamedTuple

from bascule.mesh.ports import MAX_VALUE_BYTES, Board

STREAM = "BSC"
JOIN = "bsc.j"
API = "$JS.API"

_SECOND_NS = 1_000_000_000
_DAY_NS = 24 * 3_600 * _SECOND_NS
# A day longer than an item may wait in an outbox: mail outlives whatever it carries.
MAIL_DAYS = 8
# What one node may leave in the mailbox of another: its outbox holds no more.
MAX_PER_SUBJECT = 10_000
# Of a cluster whose disk we cannot see; `set_up` takes another.
DEFAULT_MAX_BYTES = 1024 * 1024 * 1024
# A server refuses the 1,001st consumer of a stream unless told otherwise.
MAX_CONSUMERS = 5_000
# Three signs of life may be missed.
LIVE_SECONDS = 90
# Long enough that every watcher hears that a value is gone.
MARKER_SECONDS = 60
# Enough for the listings of a thousand nodes; of each key only the newest value is kept.
BOARD_BYTES = 32 * 1024 * 1024


# Without them nobody hears that a value is gone because of its age.
_MARKERS: dict[str, Any] = {"allow_msg_ttl": True, "subject_delete_marker_ttl": MARKER_SECONDS * _SECOND_NS}
# With a header (`Nats-Rollup: all`) on its own value a node would empty the whole board, and with the cards the list of
# those revoked. Markers need that header, so signs of life can be wiped: each node says it again within 30 s.
_NOT_EMPTIED: dict[str, Any] = {"allow_rollup_hdrs": False, "deny_purge": True}


class Permissions(NamedTuple):
    publish: list[str]
    subscribe: list[str]
    # May it answer whoever sends it a request?
    answer: bool = False


def mail(dest: str, src: str) -> str:
    return f"bsc.m.{dest}.{src}"


def live(dest: str, src: str) -> str:
    return f"bsc.l.{dest}.{src}"


def inbox(user: str) -> str:
    return f"_INBOX_{user}"


def bucket(board: Board) -> str:
    return f"KV_bsc_{board}"


def board_key(board: Board, key: str) -> str:
    return f"$KV.bsc_{board}.{key}"


def node_permissions(node: str) -> Permissions:
    """Its own letters, values and consumers; whoever a letter says it is from is checked by its signature."""
    publish = [mail("*", node), live("*", node), f"{API}.STREAM.INFO.{STREAM}"]
    publish += _reading(STREAM, node, mail(node, "*"))
    for board in Board:
        publish.append(board_key(board, node))
        publish += _reading(bucket(board), node, board_key(board, ">"))
    return Permissions(publish, [live(node, ">"), f"{inbox(node)}.>"])


def authority_permissions(node: str) -> Permissions:
    """Of the node that holds the mesh key: it makes the streams, posts all cards and answers those who want to join."""
    own = node_permissions(node)
    made = [STREAM, *(bucket(board) for board in Board)]
    publish = [*own.publish, board_key(Board.CARDS, ">")]
    publish += [f"{API}.STREAM.{verb}.{stream}" for stream in made for verb in ("CREATE", "INFO")]
    return Permissions(publish, [*own.subscribe, f"{JOIN}.*"], answer=True)


def invited_permissions(user: str) -> Permissions:
    """`user`: the text of its key. It may ask to join, and hear the answer."""
    return Permissions([f"{JOIN}.*"], [f"{inbox(user)}.>"])


def _reading(stream: str, node: str, subject: str) -> list[str]:
    return [
        # The server refuses a body with another filter than the subject's.
        f"{API}.CONSUMER.CREATE.{stream}.{node}.{subject}",
        f"{API}.CONSUMER.DELETE.{stream}.{node}",
        f"{API}.CONSUMER.MSG.NEXT.{stream}.{node}",
    ]


def streams(replicas: int, max_bytes: int) -> list[dict[str, Any]]:
    """Configurations, as the server wants them."""
    letters = {
        "name": STREAM,
        "subjects": [mail("*", "*")],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": MAIL_DAYS * _DAY_NS,
        "max_msgs_per_subject": MAX_PER_SUBJECT,
        "max_bytes": max_bytes,
        "max_consumers": MAX_CONSUMERS,
        "duplicate_window": 120 * _SECOND_NS,
        "num_replicas": replicas,
        # Nobody reads letters but by consumers of their own.
        "allow_direct": False,
    }
    boards = [
        {
            "name": bucket(board),
            "subjects": [board_key(board, ">")],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_age": LIVE_SECONDS * _SECOND_NS if board is Board.LIVE else 0,
            "max_msgs_per_subject": 1,
            "max_bytes": BOARD_BYTES,
            "max_consumers": MAX_CONSUMERS,
            "duplicate_window": min(120, LIVE_SECONDS) * _SECOND_NS,
            "num_replicas": replicas,
            "max_msg_size": MAX_VALUE_BYTES[board],
            "deny_delete": True,
            **(_MARKERS if board is Board.LIVE else _NOT_EMPTIED),
        }
        for board in Board
    ]
    return [letters, *boards]


def consumer(stream: str, node: str, subject: str, start: int | None) -> dict[str, Any]:
    """A cheap one: nothing of it is replicated or on a disk, for its place is in our own store. `start` is the number
    of the first letter; None: the newest value of each key."""
    begin: dict[str, Any] = (
        {"deliver_policy": "last_per_subject"}
        if start is None
        else {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
    )
    config = {
        "name": node,
        "filter_subject": subject,
        "ack_policy": "none",
        "replay_policy": "instant",
        "num_replicas": 1,
        "mem_storage": True,
        "inactive_threshold": 300 * _SECOND_NS,
        **begin,
    }
    return {"stream_name": stream, "config": config}
