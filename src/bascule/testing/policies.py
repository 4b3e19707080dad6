"""The policies that come with Bascule, for tests that judge without a daemon."""

from bascule.bridge_list import presets_of
from bascule.kernel.policy.engine import Policy, preset_in
from bascule.kernel.policy.presets import DEFAULT_PRESET


def preset(name: str) -> Policy:
    """One of ours, by name."""
    return preset_in(presets_of(), name)


def standard() -> Policy:
    """What is in force unless a setting says otherwise."""
    return preset(DEFAULT_PRESET)
