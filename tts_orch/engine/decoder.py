"""The decoder: continuous batching of many trajectories on one device, each verify step a single packed forward pass.

A step is five verbs: admit, draft, forward, verify, commit. It knows token ids and laws; texts, problems and searches
are somebody else's. Under keyed verification what it emits for a request is a pure function of (target, request): drafts,
batch, preemption and forks change the speed only. Under rejection they change the tokens too, never their law.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np
import torch

from tts_orch.config import EngineConfig
from tts_orch.engine.admission import Admission
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.drafter_link import DrafterLink
from tts_orch.engine.laws import RawStatistics, raw_statistics
from tts_orch.engine.packing import PAGE, Entry, draft_place, pack
from tts_orch.engine.rejection import verify_by_rejection
from tts_orch.engine.target import Target
from tts_orch.engine.trajectory import Trajectory
from tts_orch.engine.verification import Walk, verify
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest, FinishReason, FloatArray, IntArray
from tts_orch.seeds import stream_seed

__all__ = ["Counters", "Decoder"]

_NO_LAW: Final = "the target's logits at position {} are not numbers, or the sampling law excludes every token"


@dataclass(slots=True)
class Counters:
    """What a decoder has done so far; times in seconds.

    `verify_steps` counts every trajectory's verify steps, `passes` the forward passes they were packed into, so
    `committed_tokens / verify_steps` is the acceptance length tau. Prefill commits nothing: the first token of a
    trajectory comes from its first verify step.
    """

    committed_tokens: int = 0
    verify_steps: int = 0
    passes: int = 0
    draft_nodes: int = 0
    accepted_nodes: int = 0
    prefill_tokens: int = 0
    draft_s: float = 0.0
    forward_s: float = 0.0
    verify_s: float = 0.0
    commit_s: float = 0.0
    learn_s: float = 0.0


@dataclass(slots=True)
class _Plan:
    """One trajectory's part of a pass: a prefill chunk, or a tree on its root."""

    trajectory: Trajectory
    entry: Entry
    first_row: int = 0


class Decoder:
    """Decodes requests on one target.

    Args:
        target: the loaded model.
        drafter: where drafts come from, None for plain decoding.
        config: batch and memory limits.
        cost_model: what passes cost; measured on the target if not given and drafts are on.

    All methods but `cancel` belong to one thread.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None, config: EngineConfig, cost_model: CostModel | None = None
    ) -> None:
        self.target = target
        self.counters = Counters()
        self._prefill_chunk = config.prefill_chunk
        self._overlaps = config.draft_overlap
        self._is_keyed = config.verification == "keyed"
        self._max_nodes = max_nodes = 0 if drafter is None else config.max_nodes
        feature_layers = drafter.feature_layers if drafter is not None and max_nodes else ()
        self._admission = Admission(target, config, max_nodes, feature_layers)
        if max_nodes and config.node_budget and cost_model is None:
            cost_model = target.measure_cost(config.max_batch)
        self.cost_model = cost_model
        self._link: DrafterLink | None = None
        if drafter is not None:
            self._link = DrafterLink(drafter, config, cost_model, self._admission.pages)

    @property
    def drafter(self) -> Drafter | None:
        """Where drafts come from."""
        return None if self._link is None else self._link.drafter

    @property
    def is_idle(self) -> bool:
        """Whether nothing is running or waiting."""
        return not self._admission.running and not self._admission.waiting

    def submit(self, request: DecodeRequest) -> None:
        """Queue a request.

        Raises:
            ProblemError: its name is taken, its tokens are unknown to the target, leave no room for output, or would never
                fit into the memory for keys and values.
        """
        self._admission.submit(request)

    def cancel(self, candidate_id: str) -> None:
        """End a request at the next step with reason `cancelled`; unknown ids are ignored. Safe from any thread."""
        self._admission.cancel(candidate_id)

    def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        if self._link is not None:
            self._link.close_scope(scope)

    def statistics(self) -> dict[str, float]:
        """Return the counters by name, the drafter's among them."""
        admission = self._admission
        of_drafter = self._link.statistics() if self._link is not None else {}
        of_admission = {"cached_tokens": admission.cached_tokens, "preemptions": admission.preemptions}
        return {**asdict(self.counters), **of_admission, **of_drafter}

    def change_drafter(self, change: Callable[[Drafter], Drafter]) -> None:
        """Draft, from the next step on, with what a function makes of the drafter; it changes the speed only.

        Raises:
            ConfigError: there is no drafter, or the new one does not suit a run that has begun.
        """
        if self._link is None:
            raise ConfigError("drafters: this run drafts not at all; start one with drafters")
        self._link.change_drafter(change(self._link.drafter), [*self._admission.running, *self._admission.waiting])

    def routing_report(self) -> RoutingReport:
        """Return what each of several drafters did since the last call."""
        return self.drafter.take_report() if isinstance(self.drafter, ComposedDrafter) else RoutingReport()

    def step(self) -> list[Chunk]:
        """Advance every running trajectory by one verify step or prefill chunk and return what was committed."""
        chunks = [self._end(trajectory) for trajectory in self._admission.take_cancelled()]
        for trajectory in self._admission.admit():
            if self._link is not None:
                self._link.start(trajectory)
        before = replace(self.counters)
        plans = self._plan()
        if not plans:
            return chunks
        logits = self._forward(plans)
        self._learn_prompts([plan for plan in plans if plan.entry.tree is None], logits)
        chunks += self._verify([plan for plan in plans if plan.entry.tree is not None], logits)
        self._book(before, sum(len(plan.entry.token_ids) for plan in plans if plan.entry.tree is None))
        return chunks

    def _plan(self) -> list[_Plan]:
        """Choose what every running trajectory does in this pass, oldest first."""
        decoding = self._take_turn(self._reserve([t for t in self._admission.running if not t.is_prefilling]))
        prefills = self._plan_prefills()
        trees = self._draft(decoding, sum(len(plan.entry.token_ids) for plan in prefills))
        plans = [
            _Plan(t, Entry(t.token_ids[-1:], t.length - 1, t.pages, tree, t.draft_pages))
            for t, tree in zip(decoding, trees, strict=True)
        ]
        return plans + prefills

    def _reserve(self, decoding: Sequence[Trajectory]) -> list[Trajectory]:
        """Make pages for whatever may be committed in this pass; return those that were not preempted for it.

        This comes before any draft: a drawn tree must not be lost for what its tokens led to.
        """
        for trajectory in decoding:
            if trajectory in self._admission.running:
                self._admission.reserve(trajectory, trajectory.length + min(self._room(trajectory), self._max_nodes))
        running = set(map(id, self._admission.running))
        return [trajectory for trajectory in decoding if id(trajectory) in running]

    def _take_turn(self, decoding: list[Trajectory]) -> list[Trajectory]:
        """Return who is verified in this pass; the others are being drafted for meanwhile."""
        if self._link is None or not self._overlaps:
            return decoding
        started = time.perf_counter()
        turn = self._link.take_turn(decoding)
        self.counters.draft_s += time.perf_counter() - started
        return turn

    def _room(self, trajectory: Trajectory) -> int:
        """Return the deepest level at which a draft node could still be committed."""
        return trajectory.limit - trajectory.length - 1

    def _plan_prefills(self) -> list[_Plan]:
        plans, room = [], self._prefill_chunk
        for trajectory in [t for t in self._admission.running if t.is_prefilling]:
            if room == 0:
                break
            end = min(trajectory.computed + room, trajectory.length - 1)
            tokens = trajectory.token_ids[trajectory.computed : end]
            room -= len(tokens)
            first = len(tokens)
            if self._link is not None:
                first = min(max(self._link.n_learned(trajectory) - trajectory.computed, 0), first)
            plans.append(_Plan(trajectory, Entry(tokens, trajectory.computed, trajectory.pages, first_logit=first)))
        return plans

    def _draft(self, decoding: Sequence[Trajectory], other_rows: int) -> list[DraftTree]:
        """Return a tree for each trajectory: the root, and the draft nodes to verify."""
        trees = [DraftTree.root_only(trajectory.root) for trajectory in decoding]
        if self._link is None or not (drafting := self._link.drafting(decoding)):
            return trees
        started = time.perf_counter()
        rooms = np.array([self._room(trajectory) for trajectory in drafting], np.int64)
        other_rows += len(decoding) - len(drafting)
        drafted = self._link.draft(drafting, rooms, other_rows, n_roots=len(decoding))
        tree_of = dict(zip(map(id, drafting), drafted, strict=True))
        self.counters.draft_s += time.perf_counter() - started
        return [tree_of.get(id(trajectory), tree) for trajectory, tree in zip(decoding, trees, strict=True)]

    def _forward(self, plans: Sequence[_Plan]) -> torch.Tensor:
        batch = pack([plan.entry for plan in plans])
        started = time.perf_counter()
        logits = self.target.forward(batch, self._admission.pages)
        self.target.synchronise()
        elapsed = time.perf_counter() - started
        if self.cost_model is not None:
            self.cost_model.observe(batch.n_rows, elapsed)
        row = 0
        for plan in plans:
            plan.first_row = row
            row += len(plan.entry.token_ids) - plan.entry.first_logit + plan.entry.n_drafts
        self.counters.forward_s += elapsed
        self.counters.passes += 1
        return logits

    def _learn_prompts(self, plans: Sequence[_Plan], logits: torch.Tensor) -> None:
        for plan in plans:
            trajectory, n_tokens = plan.trajectory, len(plan.entry.token_ids)
            n_wanted = n_tokens - plan.entry.first_logit
            if n_wanted and self._link is not None:
                statistics = raw_statistics(logits[plan.first_row : plan.first_row + n_wanted])
                self._link.learn_prompt(trajectory, plan.entry, statistics)
            trajectory.computed += n_tokens
            trajectory.observe_from = max(trajectory.observe_from, trajectory.computed)
            self.counters.prefill_tokens += n_tokens
            if not trajectory.is_prefilling:
                trajectory.observe_from = trajectory.length
                self._admission.share(trajectory)

    def _verify(self, plans: Sequence[_Plan], logits: torch.Tensor) -> list[Chunk]:
        if not plans:
            return []
        started = time.perf_counter()
        walks = [self._walk(plan) for plan in plans]
        (verify if self._is_keyed else verify_by_rejection)(walks, logits)
        rows = [walk.first_row + node for walk in walks for node in walk.nodes]
        tokens = [token for walk in walks for token in walk.tokens]
        visited = logits[torch.tensor(rows, device=logits.device)]
        statistics = raw_statistics(visited)
        chosen = visited[torch.arange(len(rows)), torch.tensor(tokens)].float().cpu().numpy()
        log_probs = (chosen - statistics.log_normaliser).astype(np.float32)
        verified = time.perf_counter()
        chunks, counts = self._commit(plans, walks, statistics, log_probs)
        committed = time.perf_counter()
        if self._link is not None:
            self._link.learn([plan.trajectory for plan in plans], walks, counts, statistics, logits)
        learned = time.perf_counter()
        for plan, chunk in zip(plans, chunks, strict=True):
            if chunk.finish_reason is not None:
                self._close(plan.trajectory)
        self.counters.verify_s += verified - started
        self.counters.commit_s += committed - verified + time.perf_counter() - learned
        self.counters.learn_s += learned - committed
        return chunks

    def _walk(self, plan: _Plan) -> Walk:
        trajectory, request = plan.trajectory, plan.trajectory.request
        seed = request.seed if self._is_keyed else stream_seed(request.seed, request.attempt, "coins")
        tree: DraftTree = plan.entry.tree  # type: ignore[assignment]
        trajectory.verify_steps += 1
        return Walk(tree, trajectory.law, seed, trajectory.length - 1, plan.first_row, trajectory.verify_steps - 1)

    def _commit(
        self, plans: Sequence[_Plan], walks: Sequence[Walk], statistics: RawStatistics, log_probs: np.ndarray
    ) -> tuple[list[Chunk], list[int]]:
        """Append what the walks drew, up to each trajectory's end, and move the accepted keys; return how many each took."""
        chunks, counts, moves, row = [], [], [], 0
        for plan, walk in zip(plans, walks, strict=True):
            trajectory, start = plan.trajectory, plan.trajectory.length
            drawn = _drawn(walk, statistics.self_certainties[row : row + len(walk.nodes)])
            confidences = statistics.confidences[row : row + len(drawn)]
            n, reason = trajectory.commit(drawn, confidences.tolist())
            if reason is None and len(drawn) < len(walk.tokens):
                reason = FinishReason.ERROR
            accepted = walk.nodes[1 : n + 1]
            trajectory.computed = start + len(accepted)
            moves.append(_moves(trajectory, start, accepted))
            rows = slice(row, row + n)
            chunks.append(
                Chunk(
                    trajectory.request.candidate_id,
                    start,
                    np.array(walk.tokens[:n], np.int32),
                    log_probs[rows],
                    statistics.confidences[rows],
                    statistics.self_certainties[rows],
                    verify_steps=1,
                    draft_nodes=plan.entry.n_drafts,
                    finish_reason=reason,
                    message=_NO_LAW.format(trajectory.length) if reason is FinishReason.ERROR else "",
                )
            )
            counts.append(n)
            self._count(plan, n, len(accepted))
            row += len(walk.nodes)
        self._admission.pages.move(*(np.concatenate(column) for column in zip(*moves, strict=True)))
        return chunks, counts

    def _book(self, before: Counters, n_prefilled: int) -> None:
        """Tell the balance what drafts brought and cost in a pass."""
        if self._link is None or self._link.balance is None:
            return
        after = self.counters
        n_roots = after.verify_steps - before.verify_steps
        if n_roots:
            self._link.balance.book(
                n_roots,
                after.draft_nodes - before.draft_nodes,
                n_prefilled,
                after.committed_tokens - before.committed_tokens - n_roots,
                after.draft_s - before.draft_s,
                after.learn_s - before.learn_s,
            )

    def _count(self, plan: _Plan, n_committed: int, n_accepted: int) -> None:
        self.counters.committed_tokens += n_committed
        self.counters.verify_steps += 1
        self.counters.draft_nodes += plan.entry.n_drafts
        self.counters.accepted_nodes += n_accepted

    def _end(self, trajectory: Trajectory) -> Chunk:
        self._close(trajectory)
        none = np.zeros(0, np.float32)
        tokens = np.zeros(0, np.int32)
        name, reason = trajectory.request.candidate_id, FinishReason.CANCELLED
        return Chunk(name, trajectory.length, tokens, none, none, none, finish_reason=reason)

    def _close(self, trajectory: Trajectory) -> None:
        if self._link is not None:
            self._link.close(trajectory)
        self._admission.retire(trajectory)


def _drawn(walk: Walk, self_certainties: FloatArray) -> list[int]:
    """Return the tokens of a walk up to where its logits are not numbers, or its law gave none."""
    is_lost = np.isnan(self_certainties) | (np.array(walk.tokens) < 0)
    return walk.tokens[: int(is_lost.argmax())] if is_lost.any() else walk.tokens


def _moves(
    trajectory: Trajectory, start: int, accepted: Sequence[int]
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return from which (page, offset) to which (page, offset) the keys of accepted nodes go."""
    positions = np.arange(start, start + len(accepted), dtype=np.int32)
    source = draft_place(np.asarray(trajectory.draft_pages, np.int32), np.asarray(accepted, np.int32))
    return (*source, np.asarray(trajectory.pages, np.int32)[positions // PAGE], positions % PAGE)
