"""What nodes may be called. Light: every client reads the rows, and these with them."""

from typing import Annotated

from msgspec import Meta

from bascule.foundation.ids import NODE_PATTERN

# Words behind an `@` that are not nodes: any node with a free member, this one, and the agents beyond A2A.
RESERVED_NODES = frozenset({"any", "local", "a2a"})

NodeText = Annotated[str, Meta(pattern=NODE_PATTERN, description="A node: 1 to 32 of a-z 0-9 -")]
