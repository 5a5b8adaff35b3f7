"""A drafter in a pool, and how far it knows the trajectories of many clients."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tts_orch.drafters.pool_messages import PoolReply, PoolRequest, TrajectoryNews
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryId, VerifiedStep
from tts_orch.records import IntArray

__all__ = ["PoolMember"]

_IDLE_S: Final = 300.0
"""A trajectory that nobody asked about for so long belongs to a client that is gone."""


@dataclass(slots=True)
class _Known:
    """How far a trajectory is known."""

    n_tokens: int
    last_token: int
    n_features: int = 0
    asked_at: float = field(default_factory=time.monotonic)


class PoolMember:
    """A drafter with the trajectories that it knows, those asked for last at the end.

    Args:
        drafter: nobody else uses it.
        max_trajectories: that are remembered.

    Attributes:
        drafter: the same.
    """

    def __init__(self, drafter: Drafter, max_trajectories: int) -> None:
        self.drafter = drafter
        self._max_trajectories = max_trajectories
        self._known: OrderedDict[TrajectoryId, _Known] = OrderedDict()

    def propose(self, requests: Sequence[PoolRequest]) -> list[PoolReply]:
        """Take in all news, and draft for everybody in one batch."""
        steps: list[VerifiedStep] = []
        for request in requests:
            for closed in request.closed:
                self._forget(_key(request, closed))
        told = _standing(requests)
        wanted = {key: n_nodes for key, news, n_nodes in told if self._take(key, news, steps)}
        if steps:
            self.drafter.observe(steps)
        for key, news, _ in told:
            if key in wanted and news.features is not None:
                self.drafter.observe_features(key, news.n_known_features, news.features)
                self._known[key].n_features += len(news.features)
        trees = self._draft(wanted)
        self._forget_abandoned(wanted)
        return [
            PoolReply(tuple(trees.get(_key(request, news.trajectory)) for news in request.news)) for request in requests
        ]

    def forget_all(self) -> None:
        """Forget every trajectory."""
        for key in list(self._known):
            self._forget(key)

    def _take(self, key: TrajectoryId, news: TrajectoryNews, steps: list[VerifiedStep]) -> bool:
        """Take in tokens, as a step to observe where they are new; returns whether the trajectory is known now."""
        if news.start is not None:
            self._forget(key)
            self.drafter.start(replace(news.start, trajectory=key))
            self._known[key] = _Known(len(news.start.token_ids), int(news.start.token_ids[-1]))
        known = self._known.get(key)
        if known is None or (known.n_features != news.n_known_features):
            return False
        if news.start is None and known.n_tokens != news.n_known:
            return False
        if len(news.committed):
            steps.append(_accepted(key, known.last_token, news.committed))
            known.n_tokens, known.last_token = known.n_tokens + len(news.committed), int(news.committed[-1])
        return True

    def _draft(self, wanted: Mapping[TrajectoryId, int]) -> dict[TrajectoryId, DraftTree]:
        if not wanted:
            return {}
        return dict(zip(wanted, self.drafter.slots(list(wanted)).grow(list(wanted.values())), strict=True))

    def _forget_abandoned(self, asked: Mapping[TrajectoryId, int]) -> None:
        now = time.monotonic()
        for key in asked:
            self._known[key].asked_at = now
            self._known.move_to_end(key)
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) <= self._max_trajectories and now - self._known[oldest].asked_at < _IDLE_S:
                return
            self._forget(oldest)

    def _forget(self, key: TrajectoryId) -> None:
        if self._known.pop(key, None) is not None:
            self.drafter.close(key)


def _key(request: PoolRequest, trajectory: TrajectoryId) -> TrajectoryId:
    return f"{request.client}/{trajectory}"


def _standing(requests: Sequence[PoolRequest]) -> list[tuple[TrajectoryId, TrajectoryNews, int]]:
    """Return all news, with the nodes that are wanted, but those of trajectories that a later request ends or begins anew.

    Their client has given them up, as it does when a reply is late.
    """
    last: dict[TrajectoryId, int] = {}
    for number, request in enumerate(requests):
        begun = [news.trajectory for news in request.news if news.start is not None]
        last.update({_key(request, trajectory): number for trajectory in (*request.closed, *begun)})
    return [
        (key, news, request.n_nodes)
        for number, request in enumerate(requests)
        for news in request.news
        if number >= last.get(key := _key(request, news.trajectory), 0)
    ]


def _accepted(key: TrajectoryId, root: int, committed: IntArray) -> VerifiedStep:
    """Return committed tokens as a verify step whose draft was right, without laws."""
    n = len(committed)
    tree = DraftTree.chain(root, committed[:-1].tolist())
    return VerifiedStep(
        key, tree, np.arange(1, n, dtype=np.int32), committed, np.zeros((n, 1), np.int32), np.zeros((n, 1), np.float32)
    )
