"""Code in other languages inside a command line: does it delete files, or start programs that nobody reads?

A look at names, not a parser: it finds what an agent writes without thinking of us, and whoever wants to hide a delete
from it can. What it finds asks; that it finds nothing proves nothing.
"""

import re

_DELETES = re.compile(
    r"\brmtree\b|\bos\.(?:remove|unlink|rmdir|removedirs|truncate|rename|replace)\b|\.unlink\s*\(|\.rmdir\s*\("
    r"|\bshutil\.move\b|\brm(?:dir)?Sync\b|\bunlinkSync\b|\bfs(?:\.promises|p)?\.(?:rm|rmdir|unlink|truncate)\b|\brimraf\b"
    r"|\bFileUtils\.(?:rm|remove|mv)|\b(?:File|Dir|IO)\.(?:delete|unlink|rmdir)\b|\bremove_tree\b|\bunlink\s*[(\s]"
    r"|\bDeno\.remove\b|\bdelete-(?:directory|file)\b|\bfile\s+delete\b|\bos\.remove\b"
)
_STARTS = re.compile(
    r"\bos\.(?:system|execute|popen|exec\w*|spawn\w*)\b|\bsubprocess\b|\bpty\.spawn\b|\bchild_process\b|\bexecSync\b"
    r"|\bspawnSync\b|\bDeno\.(?:run|Command)\b|\b(?:system|shell_exec|passthru|proc_open|popen)\s*[(\s]|\bBun\.spawn|\bexec\s+[\w/]|\b(?:shell-command|call-process|start-process)\b"
)


def deletes_in_code(code: str) -> bool:
    return _DELETES.search(code) is not None


def starts_in_code(code: str) -> bool:
    return _STARTS.search(code) is not None
