"""What a verifier is given of a pool of drafters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tts_orch.drafters.pool_line import PoolTransport
from tts_orch.drafters.pool_messages import MemberFacts

if TYPE_CHECKING:
    from tts_orch.drafters.pool_client import PooledDrafter

__all__ = ["PoolLink"]


@dataclass(frozen=True, slots=True)
class PoolLink:
    """The way to a pool; may be sent to workers.

    Attributes:
        transport: carries requests.
        facts: of its drafters, by name.
    """

    transport: PoolTransport
    facts: Mapping[str, MemberFacts]

    def drafter(self, name: str, n_nodes: int) -> PooledDrafter:
        """Return a drafter that asks the one of this name for trees of at most so many nodes below the root."""
        from tts_orch.drafters.pool_client import PooledDrafter  # loads torch, which a driver does not need

        return PooledDrafter(self.transport, name, self.facts[name], n_nodes=n_nodes)
