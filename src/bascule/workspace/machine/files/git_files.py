"""The files of a repository that say how it stands, by name: what an undo holds, and what a sandbox copies.

Objects are none of them, nor are reflogs but for the stash's.
"""

# Of each worktree, one file each.
STANDING = (
    "HEAD", "index", "ORIG_HEAD", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "AUTO_MERGE",
    "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "SQUASH_MSG",
)  # fmt: skip
# What was fetched last, and drafts of messages: the next command writes them anew, and no undo holds them.
PASSING = ("FETCH_HEAD", "COMMIT_EDITMSG", "TAG_EDITMSG", "NOTES_EDITMSG")
# Files of a bisection, as a regular expression.
BISECTION = r"BISECT_\w+"
# Directories of half-done work.
UNFINISHED = ("rebase-merge", "rebase-apply", "sequencer")
# Of all worktrees together.
PACKED_REFS = "packed-refs"
REFS = "refs"
# In place of both of them in some repositories.
REFTABLE = "reftable"
# The records of further worktrees.
WORKTREES = "worktrees"
# Refs that each worktree has for itself.
REFS_OF_WORKTREE = ("refs/bisect", "refs/rewritten", "refs/worktree")
