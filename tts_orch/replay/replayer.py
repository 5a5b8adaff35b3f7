"""`replay`: do to a drafter what a decoder would do, with a `Recording` in the place of the target model.

In keyed mode the target draws the same tokens whatever is drafted, so the walk through a draft tree follows the recorded
tokens, and the drafter is told the laws that they were drawn from: trees, accepted lengths and verify steps are those of
a real run. What differs: laws of nodes off the accepted path are not known, so a drafter that learns from them learns less;
a scope is told the laws of its prompts, if its drafter wants them, which a decoder computes once only while their keys stay
cached; and a node budget chooses by a cost curve that stays as it was measured, for passes without prompt rows, so that its
trees come close to those of a real run and are not the same. With it members of a composition rest as they would in a run, by
the clock of the machine that replays, which routings and levels go by too; a drafter that is alone never rests. Hidden states
of the target are not recorded: for a drafter that reads them somebody has to compute them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_size import DraftSize
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, Features, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.law_rows import text_rows
from tts_orch.replay.problem_order import ProblemOrder, in_order
from tts_orch.replay.recording import RecordedTrajectory, Recording

__all__ = ["FeaturesOf", "ScopeOf", "replay"]

ScopeOf: TypeAlias = Callable[[RecordedTrajectory], str]

FeaturesOf: TypeAlias = Callable[[RecordedTrajectory], Features]
"""Gives the features `[p + n - 1, d]` of a trajectory with p tokens of prompt and n of output, of all positions but the last."""


def _problem(recorded: RecordedTrajectory) -> str:
    return recorded.problem_id


def replay(
    recording: Recording,
    drafter: Drafter,
    size: DraftSize,
    *,
    lockstep: int = 1,
    scope_of: ScopeOf = _problem,
    order: ProblemOrder = "one_by_one",
    features: FeaturesOf | None = None,
) -> Iterator[list[VerifiedStep]]:
    """Yield the verify steps of every pass, as the decoder tells them to the drafter.

    Args:
        recording: what was decoded.
        drafter: who drafts and learns; new, or as an earlier replay left it.
        size: how many nodes are drafted.
        lockstep: trajectories that are decoded together, of one problem unless the order is `together`; when one ends the next
            one takes its place.
        scope_of: which statistics a trajectory shares; a scope is closed after its last one.
        order: of the problems.
        features: hidden states of the drafter's layers, for a drafter that reads any.

    Raises:
        ConfigError: the drafter reads hidden states, and there are none.
    """
    if drafter.feature_layers and features is None:
        raise ConfigError(
            "drafter: it reads the target's hidden states, which no recording has; compute them (`features`)"
        )
    replayer = _Replayer(recording, drafter, size, scope_of, features if drafter.feature_layers else None)
    for queue in in_order(recording.trajectories, lockstep, order):
        yield from replayer.run(queue, lockstep)


@dataclass(slots=True)
class _Live:
    """A trajectory on its way through its recorded tokens."""

    recorded: RecordedTrajectory
    limit: int
    features: Features = None
    n_told: int = 0
    n_committed: int = 0

    @property
    def room(self) -> int:
        """Deepest level at which a draft node could be committed; the decoder does not know where the trajectory ends."""
        return self.limit - self.n_committed - 1

    @property
    def is_finished(self) -> bool:
        return self.n_committed == len(self.recorded.tokens)


class _Replayer:
    def __init__(
        self,
        recording: Recording,
        drafter: Drafter,
        size: DraftSize,
        scope_of: ScopeOf,
        features: FeaturesOf | None,
    ) -> None:
        self._recording = recording
        self._drafter = drafter
        self._size = size
        self._scope_of = scope_of
        self._features = features
        self._n_left = Counter(map(scope_of, recording.trajectories))
        self._observed: set[tuple[str, bytes]] = set()

    def run(self, queue: Sequence[RecordedTrajectory], lockstep: int) -> Iterator[list[VerifiedStep]]:
        """Replay trajectories, at most `lockstep` at a time."""
        waiting = list(reversed(queue))
        live: list[_Live] = []
        while waiting or live:
            while waiting and len(live) < lockstep:
                live.append(self._start(waiting.pop()))
            yield self._pass(live)
            for one in [one for one in live if one.is_finished]:
                self._close(one.recorded)
                live.remove(one)

    def _start(self, recorded: RecordedTrajectory) -> _Live:
        recording, scope = self._recording, self._scope_of(recorded)
        start = TrajectoryStart(recorded.name, recorded.prompt.copy(), scope, recorded.seed, recording.law)
        self._drafter.start(start)
        key = scope, recorded.prompt.tobytes()
        if key not in self._observed:
            self._observed.add(key)
            self._teach_prompt(recorded)
        limit = min(recording.law.max_new_tokens, recording.max_context - len(recorded.prompt))
        return _Live(recorded, limit, None if self._features is None else self._features(recorded))

    def _teach_prompt(self, recorded: RecordedTrajectory) -> None:
        if not self._drafter.learns_prompt_laws:
            self._drafter.observe_prompt(recorded.name, 0, *text_rows(recorded.prompt[1:]))
            return
        ids, probs = self._recording.prompt_laws[recorded.problem_id]
        is_known = probs.any(axis=1)
        if is_known.any():
            first = int(is_known.argmax())
            self._drafter.observe_prompt(recorded.name, first, ids[first:], probs[first:])

    def _pass(self, live: Sequence[_Live]) -> list[VerifiedStep]:
        for one in live:
            self._tell_features(one)
        source = self._drafter.slots([one.recorded.name for one in live])
        rooms = np.array([one.room for one in live], np.int64)
        trees = self._size.draft(source, rooms, other_rows=0, n_roots=len(live))
        steps = [_verify(one, tree) for one, tree in zip(live, trees, strict=True)]
        self._drafter.observe(steps)
        self._size.observe(steps)
        for one, step in zip(live, steps, strict=True):
            one.n_committed += len(step.committed)
        return steps

    def _tell_features(self, one: _Live) -> None:
        last = len(one.recorded.prompt) + one.n_committed - 1
        if one.features is not None and one.n_told < last:
            self._drafter.observe_features(one.recorded.name, one.n_told, one.features[one.n_told : last])
            one.n_told = last

    def _close(self, recorded: RecordedTrajectory) -> None:
        scope = self._scope_of(recorded)
        self._drafter.close(recorded.name)
        self._n_left[scope] -= 1
        if not self._n_left[scope]:
            self._drafter.close_scope(scope)
            self._observed = {key for key in self._observed if key[0] != scope}


def _verify(live: _Live, tree: DraftTree) -> VerifiedStep:
    """Walk down a tree along the recorded tokens, and say what the drafter is told of it."""
    recorded, start = live.recorded, live.n_committed
    drafted, children, nodes = tree.token.tolist(), tree.children, [0]
    for token in recorded.tokens[start : start + tree.n_nodes].tolist():
        child = next((child for child in children[nodes[-1]] if drafted[child] == token), None)
        if child is None:
            break
        nodes.append(child)
    committed = recorded.tokens[start : start + len(nodes)]
    visited, end = nodes[: len(committed)], start + len(committed)
    shape = tree.n_nodes, recorded.law_ids.shape[1]
    law_ids, law_probs = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    law_ids[visited] = recorded.law_ids[start:end]
    law_probs[visited] = recorded.law_probs[start:end]
    return VerifiedStep(recorded.name, tree, np.array(nodes[1:], np.int32), committed, law_ids, law_probs)
