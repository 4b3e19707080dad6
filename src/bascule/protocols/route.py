"""A row of an edge: which verb and path reach which method."""

from typing import NamedTuple


class Route(NamedTuple):
    verb: str
    # Names in braces are wire names of the method's parameters.
    path: str
    method: str
    # What an answer without content is.
    status: int = 200
    # The section of the published spec, or "" for what we add beside it.
    section: str = ""
