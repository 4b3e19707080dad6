"""Which project a directory belongs to."""

import os
from collections import OrderedDict

# Directories whose project is remembered: agents move around in a few.
MAX_REMEMBERED = 256
_MARKS = (".git", ".hg", ".jj")


class Projects:
    """Blocks; called on threads."""

    def __init__(self, home: str) -> None:
        self.home = os.path.realpath(home)
        self._known: OrderedDict[str, str] = OrderedDict()

    def find(self, directory: str) -> str:
        """The real path of the nearest directory above that is a repository's, else of the directory itself.

        Never the home or what holds it: a repository of dotfiles there is not what an agent works on.
        """
        # By where it leads now: a link may be turned to another project at any time.
        real = os.path.realpath(directory)
        known = self._known.get(real)
        if known is not None and os.path.isdir(known):
            return known
        found = self._look(real)
        self._known[real] = found
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return found

    def _look(self, start: str) -> str:
        here = start
        while here not in ("/", self.home) and not self.home.startswith(f"{here}/"):
            if any(os.path.lexists(os.path.join(here, mark)) for mark in _MARKS):
                return here
            here = os.path.dirname(here)
        return start
