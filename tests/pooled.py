"""A pool in the process of the test: a drafter whose trees depend on all it was told, and transports with faults."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from tts_orch.drafters.pool_client import PooledDrafter
from tts_orch.drafters.pool_host import PoolHost
from tts_orch.drafters.pool_messages import PoolReply, PoolRequest
from tts_orch.errors import WorkerLostError
from tts_orch.policies.drafting.draft_tree import (
    DraftTree,
    Features,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.records import FloatArray, IntArray

Fault = Callable[[int], bool]


class FeatureReader:
    """Drafts by a hash of all tokens and features; objects to gaps in what it is told."""

    learns_from_rejected = False
    learns_prompt_laws = False
    priors = np.full(2, 0.5)

    def __init__(self, salt: int = 0, feature_layers: tuple[int, ...] = (-1,)) -> None:
        self.feature_layers = feature_layers
        self.batches: list[int] = []
        self.tokens: dict[TrajectoryId, list[int]] = {}
        self._features: dict[TrajectoryId, list[float]] = {}
        self._salt = salt

    def start(self, start: TrajectoryStart) -> None:
        assert start.trajectory not in self.tokens
        self.tokens[start.trajectory], self._features[start.trajectory] = start.token_ids.tolist(), []

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        assert len(set(trajectories)) == len(trajectories)
        self.batches.append(len(trajectories))
        return _Slots(self, trajectories)

    def tree(self, trajectory: TrajectoryId, n_nodes: int) -> DraftTree:
        tokens, features = self.tokens[trajectory], self._features[trajectory]
        assert not self.feature_layers or len(features) == len(tokens) - 1
        random = np.random.default_rng([self._salt, *tokens, *(abs(int(1e6 * value)) for value in features)])
        guesses = random.choice(np.arange(3, 97), n_nodes, replace=False).tolist()
        # two chains, of which the second one is less probable
        parent = [-1, *(0 if i < 2 else i - 1 for i in range(n_nodes))]
        depth = [0] * (n_nodes + 1)
        for node in range(1, n_nodes + 1):
            depth[node] = depth[parent[node]] + 1
        zero = np.zeros(n_nodes + 1, np.int32)
        slot = np.array([0, *(i if i < 2 else 0 for i in range(n_nodes))], np.int32)
        log_q = np.array([0.0, *random.uniform(-3, -0.1, n_nodes)], np.float32)
        kind = np.array([0, *([1] * n_nodes)], np.int32)
        return DraftTree(
            np.array([tokens[-1], *guesses], np.int32),
            np.array(parent, np.int32),
            np.array(depth, np.int32),
            slot,
            log_q,
            zero,
            kind,
        )

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        pass

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        known = self._features[trajectory]
        assert start == len(known)
        known += features.double().sum(dim=1).tolist()

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        for step in steps:
            assert step.tree.token[0] == self.tokens[step.trajectory][-1]
            assert step.tree.token[step.accepted].tolist() == step.committed[: len(step.accepted)].tolist()
            self.tokens[step.trajectory] += step.committed.tolist()

    def close(self, trajectory: TrajectoryId) -> None:
        del self.tokens[trajectory], self._features[trajectory]

    def close_scope(self, scope: str) -> None:
        pass


@dataclass(frozen=True)
class _Slots:
    drafter: FeatureReader
    trajectories: Sequence[TrajectoryId]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        return [self.drafter.tree(name, n) for name, n in zip(self.trajectories, n_nodes, strict=True)]


@dataclass
class LocalTransport:
    """Carries pickled requests to a host in another thread; `is_faulty(request number)` loses the reply.

    Attributes:
        host: where they go; None is a dead pool.
    """

    host: PoolHost | None
    is_faulty: Fault = lambda number: False
    requests: list[PoolRequest] = field(default_factory=list)
    n_resets: int = 0
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))

    def send(self, request: PoolRequest) -> Future[PoolReply]:
        if self.host is None:
            raise WorkerLostError("the pool is dead")
        self.requests.append(request)
        return self._threads.submit(self._carry, self.host, pickle.dumps(request), len(self.requests))

    def reset(self) -> None:
        self.n_resets += 1

    def _carry(self, host: PoolHost, request: bytes, number: int) -> PoolReply:
        reply = host.propose(pickle.loads(request))
        if self.is_faulty(number):
            raise WorkerLostError("the reply is lost")
        received: PoolReply = pickle.loads(pickle.dumps(reply))
        return received


def pooled(transport: LocalTransport, name: str = "math", **options: float) -> PooledDrafter:
    """Return a client that does not rest after failures."""
    assert transport.host is not None
    drafter = PooledDrafter(transport, name, transport.host.describe()[name], n_nodes=12, **options)  # type: ignore[arg-type]
    drafter._line._first_pause_s = drafter._line._pause_s = 0.0
    return drafter


def features(first: int, last: int, width: int = 4) -> torch.Tensor:
    """Return the features of positions: no two are alike."""
    return torch.arange(first * width, last * width, dtype=torch.float32).reshape(-1, width).sin()
