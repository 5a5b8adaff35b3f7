"""A change of the trained drafters of a run, as verifiers are told of it."""

from __future__ import annotations

from dataclasses import dataclass

from tts_orch.actors.folder_shipping import ShippedFolder
from tts_orch.drafters.pool_messages import MemberFacts

__all__ = ["DrafterChange"]


@dataclass(frozen=True, slots=True, eq=False)
class DrafterChange:
    """A trained drafter that comes, takes the place of the one of that name, or goes.

    Attributes:
        name: its name.
        folder: where a verifier gets it to load it, None if it does not.
        facts: what it is, if it is in a pool. With neither it goes.
    """

    name: str
    folder: ShippedFolder | None = None
    facts: MemberFacts | None = None
