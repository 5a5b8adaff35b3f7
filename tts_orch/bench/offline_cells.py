"""What recordings say of n-grams, and of the two verification rules side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts_orch.bench.coupling import aligned_laws, draft_length, keyed_acceptance, rejection_acceptance
from tts_orch.bench.overlap import ORDERS, ngram_overlap
from tts_orch.config import DraftingConfig
from tts_orch.json_lines import JsonObject
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_shape import MAX_DEPTH, heap_tree
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import Recording
from tts_orch.replay.replayer import replay

__all__ = ["SIBLINGS", "coupling_rows", "overlap_rows"]

SIBLINGS: Final = (1, 2, 4, 8)
_DEPTH: Final = 4
_DRAWS: Final = 16
_IDS: Final = 10


def overlap_rows(recording: Recording, workload: str) -> list[JsonObject]:
    """Return the n-gram overlap of trajectories by their index, the mean over problems."""
    shares = []
    for problem in recording.problem_ids:
        members = [one for one in recording.trajectories if one.problem_id == problem]
        shares.append(ngram_overlap(members[0].prompt.tolist(), [one.tokens.tolist() for one in members]))
    mean = np.mean(shares, axis=0)
    return [
        {"workload": workload, "order": n, "by_index": [round(float(x), 4) for x in mean[:, column]]}
        for column, n in enumerate(ORDERS)
    ]


def coupling_rows(recording: Recording, workload: str) -> list[JsonObject]:
    """Return the acceptance of both rules by number of siblings, over all positions at which a draft had a law.

    STAND is replayed to have its laws as they were at each position; the target's law is the recorded one, its tail
    counted as one token. Tau is that of trees of 4 levels with equal siblings everywhere.
    """
    taps = list(_positions(recording))
    p, q, committed = _laws(taps, recording.law.temperature)
    is_hit, generator = q.any(axis=1), np.random.default_rng(0)
    rows = []
    for siblings in SIBLINGS:
        keyed = keyed_acceptance(p, q, committed, siblings, _DRAWS, generator)
        rejection = rejection_acceptance(p, q, committed, siblings, _DRAWS, generator)
        by_rule = {"keyed": keyed, "rejection": rejection}
        rows.append(
            {
                "workload": workload,
                "siblings": siblings,
                "positions": int(is_hit.sum()),
                **{rule: float(values[is_hit].mean()) for rule, values in by_rule.items()},
                **{f"tau_{rule}": draft_length(values, _DEPTH) for rule, values in by_rule.items()},
            }
        )
    return rows


class _Position(NamedTuple):
    """Both laws at one position; no draft ids where the table knew no context."""

    law_ids: NDArray[np.int32]
    law_probs: NDArray[np.float32]
    draft_ids: NDArray[np.int32]
    draft_probs: NDArray[np.float64]
    token: int


class _WithLaws(MeasuredDrafter):
    """Has drafts drawn as for rejection verification, so that they bring their laws."""

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        super().start(replace(start, is_keyed=False))


def _positions(recording: Recording) -> list[_Position]:
    """Replay STAND and return the laws of every committed position, in order; chains so long that they hardly ever end."""
    chain = heap_tree((0.9,), MAX_DEPTH, MAX_DEPTH)
    drafter = Stand(DraftingConfig(node_budget=False), chain, vocabulary_size=recording.vocabulary_size)
    passes = replay(recording, _WithLaws(drafter), FixedSize(MAX_DEPTH))
    return [position for steps in passes for step in steps for position in _visited(step)]


def _visited(step: VerifiedStep) -> list[_Position]:
    tree = step.tree
    nodes = [0, *step.accepted.tolist()][: len(step.committed)]
    positions = []
    for node, token in zip(nodes, step.committed.tolist(), strict=True):
        ids, probs = np.full(_IDS, -1, np.int32), np.zeros(_IDS)
        if tree.laws is not None and tree.children[node]:
            row = tree.laws.of_node[tree.children[node][0]]
            n = len(tree.laws.ids[row])
            ids[:n], probs[:n] = tree.laws.ids[row], tree.laws.probs[row]
        positions.append(_Position(step.law_ids[node], step.law_probs[node], ids, probs, token))
    return positions


def _laws(
    positions: Sequence[_Position], temperature: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return p and q of all positions on common columns, and the column of what was committed.

    p is processed at the temperature of the run, as q is already. What the recorded law does not list is taken to be
    tokens as probable as the last one that it lists.
    """
    law_ids, law_probs, draft_ids, draft_probs, tokens = (np.stack(column) for column in zip(*positions, strict=True))
    raw = law_probs.astype(np.float64)
    weights = raw ** (1 / temperature)
    rest = np.maximum(0.0, 1 - raw.sum(axis=1)) * raw[:, -1] ** (1 / temperature - 1)
    processed = weights / (weights.sum(axis=1) + rest)[:, None]
    return aligned_laws(law_ids, processed, draft_ids, draft_probs, tokens)
