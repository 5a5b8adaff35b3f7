"""What verifiers and a pool of drafters tell each other: committed tokens and features one way, trees the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree, Features, TrajectoryId, TrajectoryStart
from tts_orch.records import IntArray

__all__ = ["MemberFacts", "PoolReply", "PoolRequest", "TrajectoryNews"]


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What a client must know of a drafter before it asks for the first tree.

    Attributes:
        priors: `[kinds]` acceptance rates to begin with.
        feature_layers: hidden states of the target that it reads.
    """

    priors: NDArray[np.float64]
    feature_layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrajectoryNews:
    """What happened to a trajectory since the pool was told last.

    Attributes:
        trajectory: its id at the client.
        start: begins it anew, with all committed tokens; None where the pool should know it.
        n_known: committed tokens that the pool should know already; 0 with a start.
        committed: `[c]` tokens committed since then; none with a start.
        n_known_features: positions whose features it should know.
        features: `[m, d]` of the positions after those, None without any.
    """

    trajectory: TrajectoryId
    start: TrajectoryStart | None
    n_known: int
    committed: IntArray
    n_known_features: int
    features: Features | None

    @property
    def n_bytes(self) -> int:
        """Size of the arrays."""
        n_bytes = self.committed.nbytes + (0 if self.start is None else self.start.token_ids.nbytes)
        return n_bytes + (0 if self.features is None else int(self.features.nbytes))


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Asks one drafter of the pool for a tree for each of these trajectories.

    Attributes:
        client: who asks; trajectories of different clients have nothing in common.
        member: name of the drafter.
        news: of the trajectories that want a tree.
        closed: trajectories that ended.
        n_nodes: most nodes below the root of a tree.
    """

    client: str
    member: str
    news: tuple[TrajectoryNews, ...]
    closed: tuple[TrajectoryId, ...]
    n_nodes: int


@dataclass(frozen=True, slots=True)
class PoolReply:
    """The answer.

    Attributes:
        trees: one for each of the news; None where the pool does not know what it should: begin the trajectory anew.
        has_member: False if there is no drafter of that name; then there are no trees.
    """

    trees: tuple[DraftTree | None, ...]
    has_member: bool = True
