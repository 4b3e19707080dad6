"""The card of a published agent."""

import re
from typing import Any

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from bascule import __version__
from bascule.a2a.cards import ONCE
from bascule.a2a.records import Published

# Both are spoken at one address; a client takes the newest that it knows.
_VERSIONS = ("1.0", "0.3")
_BINDINGS = ("JSONRPC", "HTTP+JSON")
_MODES = ("text/plain", "application/json")
_SCHEME = "bearer"


def card_of(handle: str, published: Published, base: str) -> dict[str, Any]:
    """With the fields of protocol 0.3 beside those of 1.0."""
    url = f"{base}/{handle}"
    card = AgentCard(
        name=handle,
        description=published.description,
        version=__version__,
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for version in _VERSIONS
            for binding in _BINDINGS
        ],
        # No push notifications: this daemon calls nobody whom its user did not name.
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=False,
            extended_agent_card=False,
            extensions=[
                AgentExtension(
                    uri=ONCE, description="A message id that comes again from one client is the same message."
                )
            ],
        ),
        default_input_modes=_MODES,
        default_output_modes=_MODES,
        skills=_skills(handle, published),
        security_schemes={
            _SCHEME: SecurityScheme(
                http_auth_security_scheme=HTTPAuthSecurityScheme(
                    scheme="bearer", description="A token that the owner of this agent gave you."
                )
            )
        },
        security_requirements=[SecurityRequirement(schemes={_SCHEME: StringList()})],
    )
    return agent_card_to_dict(card)


def _skills(handle: str, published: Published) -> list[AgentSkill]:
    if not published.skills:
        return [AgentSkill(id="ask", name=f"Ask {handle}", description=published.description, tags=["ask"])]
    return [
        AgentSkill(id=_slug(text, number), name=text, description=text, tags=["ask"])
        for number, text in enumerate(published.skills, 1)
    ]


def _slug(text: str, number: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or f"skill-{number}"
