"""What the workspace takes on at most, each number with its reason; a test or a setting may say otherwise."""

import msgspec

from bascule.workspace.protocol import MAX_CONTENT_BYTES


class WorkspaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    # Directories that are spaces; with hooks every project is one in which an agent ever worked.
    max_spaces: int = 1_000
    # Runs of one principal that work or wait for their turn: an agent has one per tool call of its model.
    max_runs: int = 16
    # Runs waiting for their turn in one space, of all callers together.
    max_queued_runs: int = 64
    # Runs of one principal that wait for the person; each holds the rest of its operations.
    max_paused_runs: int = 16
    # Operations of paused runs that are kept, in bytes, over all runs: they are in memory and in the store.
    max_paused_bytes: int = 64 * 1024 * 1024
    # How long a run may work, in milliseconds, not counting what it waits for turns and answers.
    max_run_ms: int = 2 * 60 * 60 * 1000
    # Runs of one space that are kept, newest first: a busy day of two agents. An undo and a blame read all of them.
    max_kept_runs: int = 500
    # Undos of one space: an older one is missed where a run that is older still is taken back.
    max_kept_undos: int = 1_000
    # Bytes of the events of one run, as JSON: what an agent can read in one answer, and then some.
    max_event_bytes: int = 16 * 1024 * 1024
    # Bytes of the events of all kept runs: they are in memory.
    max_kept_event_bytes: int = 64 * 1024 * 1024
    # The largest file that is read into an event, in bytes; the same as may be written.
    max_read_bytes: int = MAX_CONTENT_BYTES
    # Commands running in the background of one space.
    max_processes: int = 16
    # Commands that ended and whose output can still be read.
    max_kept_processes: int = 256
    # How long a call of an agent's own tool waits for the tree before it. A client gives a hook 60 s, and goes on then:
    # the rest is for a program to start and to answer on a busy machine.
    native_checkpoint_ms: int = 45_000
    # Waits and streams of one principal.
    max_followers: int = 64
    # Characters of a diff in an answer: a person reads less, a model's context holds little more.
    max_diff_chars: int = 256 * 1024
    # Script files of a command that are pinned while it waits for approval, and the largest of them.
    max_pinned_files: int = 64
    max_pinned_bytes: int = 16 * 1024 * 1024
