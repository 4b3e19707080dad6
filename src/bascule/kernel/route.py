"""A row of an edge: which verb and path reach which method."""

from typing import NamedTuple


class Route(NamedTuple):
    verb: str
    # Names in braces are wire names of the method's parameters; `{path...}` takes the rest of the path, however many
    # steps it has. A path that ends in `/` is met only by one that does too.
    path: str
    method: str
    # What an answer without content is.
    status: int = 200
    # The section of the published spec, or "" for what we add beside it.
    section: str = ""
    # The largest body, in bytes; 0 for what all others take.
    max_body: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Wire names of the parameters that stand in the path, in order."""
        return tuple(part[1:-1].removesuffix("...") for part in self.path.split("/") if part.startswith("{"))
