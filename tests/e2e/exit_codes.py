"""Exit codes as docs/reference/exit-codes.md lists them: scripts of users compare with these numbers."""

USAGE = 2
NOTHING_CAME = 3
REFUSED = 4
NOT_FOUND = 5
CONFLICT = 6
UNREACHABLE = 7
APPROVAL = 11
INTERRUPTED = 130
