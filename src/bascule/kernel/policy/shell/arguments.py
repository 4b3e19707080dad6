"""Programs the reader does not know, and a destructive command among what they are given.

`ssh-agent rm -rf x`, `tmux new 'rm -rf x'`, `man -P 'rm -rf x' ls`: many programs run a program or a text of their
arguments, and no list of them is ever whole. So it is the other way round: a program is known to take words for words,
or such words behind it count.
"""

import re

from bascule.kernel.policy.shell.fields import Field
from bascule.kernel.policy.shell.looking import LOOKING
from bascule.kernel.policy.shell.traits import destroys, names_a_destroyer

# To these a word is a word: a pattern, a message, a package, the name of a test.
_WORDS = LOOKING | frozenset(
    ["rg", "ack", "gh", "glab", "logger", "notify-send", "wall", "pytest", "py.test", "jest", "vitest",
     "mocha", "rspec", "phpunit", "whereis", "whatis", "apropos", "tldr", "info", "help", "declare", "local",
     "readonly", "typeset", "read", "unset", "apt", "apt-get", "apt-cache", "dpkg", "dnf", "yum", "rpm",
     "zypper", "brew", "pacman", "apk", "port", "snap", "pip", "pip3", "conda", "cowsay", "figlet"]
)  # fmt: skip
# Programs looked at behind one: `foo rm rm rm rm ...` must not be read once for each.
MAX_LOOKED_AT = 16

_BLANK = r"[\s,'\"]{1,8}"
_DESTROYS = re.compile(
    rf"\brm{_BLANK}(?:-[\w-]{{1,16}}{_BLANK}){{0,4}}-{{1,2}}(?:\w{{0,8}}[rRf]|rec|for)"
    rf"|\b(?:shred|wipefs|rimraf|mkfs(?:\.\w{{1,8}})?|blkdiscard){_BLANK}\S"
    rf"|\bgit{_BLANK}(?:clean{_BLANK}-\w{{0,4}}f|reset{_BLANK}--hard)"
    r"|\bdd\s{1,8}(?:\w{1,8}=\S{0,64}\s{1,8}){0,8}of=|\btruncate\s{1,8}-"
    r"|\bremove_directory\b|\bdelete-(?:directory|file)\b"
)
_FIND = re.compile(r"\bfind\s")
_DELETE = re.compile(r"\s-delete\b")


def destroys_in_text(text: str) -> bool:
    """Whether a text says what deletes or overwrites, in whichever language it is around it."""
    if _DESTROYS.search(text) is not None:
        return True
    found = _FIND.search(text)
    return found is not None and _DELETE.search(text, found.end()) is not None


def takes_words(name: str) -> bool:
    return name in _WORDS


def destroys_behind(args: list[Field]) -> bool:
    """Whether a program that may run what it is given is given what destroys."""
    looked = 0
    for at, field in enumerate(args):
        text = field.text if field.text is not None else field.source
        if len(text) > 2 and destroys_in_text(text):
            return True
        if not names_a_destroyer(text.rpartition("/")[2]) or at + 1 == len(args):
            continue
        looked += 1
        behind = args[at + 1 :]
        # `--exec /bin/rm -- -rf x`: the dashes are the outer program's.
        if (
            destroys(text.rpartition("/")[2], behind[1:] if behind[0].text == "--" else behind)
            or looked > MAX_LOOKED_AT
        ):
            return True
    return False
