"""Who runs and who waits: admission by memory for keys and values, prompt sharing, preemption.

Admission is optimistic: a trajectory is let in when its committed tokens fit and takes pages as it grows. When pages run
out the youngest gives its own up and is computed again later, with the same tokens. Samples of one prompt share its
prefill: while one of them computes it the others wait, then all read the same pages.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from tts_orch.config import EngineConfig
from tts_orch.engine.kv_slots import KVSlots
from tts_orch.engine.packing import PAGE
from tts_orch.engine.target import Target
from tts_orch.engine.trajectory import Trajectory
from tts_orch.errors import ProblemError
from tts_orch.records import DecodeRequest

__all__ = ["Admission"]


def _n_pages(n_positions: int) -> int:
    return -(-n_positions // PAGE)


class Admission:
    """The running and the waiting trajectories of a decoder, and their pages.

    Args:
        target: the loaded model.
        config: batch and memory limits.
        max_nodes: draft nodes that a trajectory needs room for, 0 for plain decoding.
        feature_layers: whose hidden states are kept beside keys and values, for a drafter that reads them.
    """

    def __init__(
        self, target: Target, config: EngineConfig, max_nodes: int, feature_layers: Sequence[int] = ()
    ) -> None:
        self._target = target
        self._max_batch = config.max_batch
        self._n_draft_pages = _n_pages(max_nodes)
        self._arrivals = 0
        self._cancelled: set[str] = set()
        n_pages = max(2, int(config.kv_memory_gib * 2**30 / target.bytes_per_page(feature_layers)))
        self._slots = KVSlots(n_pages)
        self.pages = target.new_pages(n_pages, feature_layers)
        self.running: list[Trajectory] = []
        self.waiting: list[Trajectory] = []
        self.cached_tokens = 0
        self.preemptions = 0

    def submit(self, request: DecodeRequest) -> None:
        """Queue a request by (priority, arrival); see `Decoder.submit`."""
        self._check(request)
        trajectory = Trajectory(
            request,
            self._arrivals,
            stop_ids=(*self._target.eos_ids, *request.law.stop_ids),
            vocab_size=self._target.vocab_size,
            max_context=self._target.max_context,
            decode=self._target.decode,
        )
        self._arrivals += 1
        if _n_pages(trajectory.solution_limit) + self._n_draft_pages + 1 > self._slots.n_pages:
            raise ProblemError(
                f"{request.candidate_id}: {trajectory.solution_limit} positions do not fit into the memory for keys and "
                f"values; raise kv_memory_gib or lower max_new_tokens"
            )
        bisect.insort(self.waiting, trajectory, key=_order)

    def _check(self, request: DecodeRequest) -> None:
        name, n_tokens, max_new_tokens = request.candidate_id, len(request.token_ids), request.law.max_new_tokens
        if any(name == other.request.candidate_id for other in (*self.running, *self.waiting)):
            raise ProblemError(f"{name}: a request of this id is still running; give each one an id of its own")
        if not 0 < request.prompt_length <= n_tokens:
            raise ProblemError(f"{name}: its prompt is empty; give at least one token")
        unknown = request.token_ids[(request.token_ids < 0) | (request.token_ids >= self._target.vocab_size)]
        if len(unknown):
            raise ProblemError(
                f"{name}: {self._target.name} has no token {unknown[0]}, only 0 to {self._target.vocab_size - 1}; "
                f"use its own tokenizer"
            )
        if n_tokens - request.prompt_length >= max_new_tokens:
            raise ProblemError(f"{name}: it has its {max_new_tokens} new tokens already; raise max_new_tokens")
        if n_tokens >= self._target.max_context:
            raise ProblemError(
                f"{name}: {n_tokens} prompt tokens, but {self._target.name} reads at most "
                f"{self._target.max_context} with its output; shorten the prompt"
            )

    def cancel(self, candidate_id: str) -> None:
        """Mark a request; `take_cancelled` acts on it."""
        self._cancelled.add(candidate_id)

    def take_cancelled(self) -> list[Trajectory]:
        """Return the marked trajectories that are running or waiting; the waiting ones are removed."""
        marked = self._cancelled.copy()
        self._cancelled.difference_update(marked)  # in place: what another thread adds meanwhile stays
        if not marked:
            return []
        taken = [t for t in (*self.running, *self.waiting) if t.request.candidate_id in marked]
        self.waiting = [t for t in self.waiting if t.request.candidate_id not in marked]
        return taken

    def admit(self) -> list[Trajectory]:
        """Move waiting trajectories to the running ones while there is room, and return them."""
        computing = {_prefix(t) for t in self.running if t.is_prefilling}
        admitted: list[Trajectory] = []
        for trajectory in list(self.waiting):
            if len(self.running) >= self._max_batch:
                break
            if _prefix(trajectory) in computing:
                continue
            if not self._place(trajectory):
                break
            self.waiting.remove(trajectory)
            self.running.append(trajectory)
            admitted.append(trajectory)
            if trajectory.is_prefilling:
                computing.add(_prefix(trajectory))
        return admitted

    def reserve(self, trajectory: Trajectory, n_positions: int) -> bool:
        """Make pages for positions below `n_positions` that may be written, preempting younger trajectories if need be.

        Returns:
            False if the trajectory itself was preempted.
        """
        while not self._grow(trajectory, n_positions):
            youngest = max(self.running, key=_order)
            self._preempt(youngest)
            if youngest is trajectory:
                return False
        return True

    def share(self, trajectory: Trajectory) -> None:
        """Let others read what is computed of a trajectory."""
        offered = self._slots.share(trajectory.token_ids[: trajectory.computed], trajectory.pages)
        trajectory.is_shared = bool(offered) and offered[-1] == trajectory.pages[-1]

    def retire(self, trajectory: Trajectory) -> None:
        """Take a trajectory out of the running ones; its pages stay readable until memory is wanted."""
        if trajectory in self.running:
            self.running.remove(trajectory)
            self._give_up(trajectory)

    def _place(self, trajectory: Trajectory) -> bool:
        known = self._slots.find(trajectory.token_ids[:-1])
        n_new = _n_pages(trajectory.length) - len(known.pages)
        headroom = len(self.running)  # each running trajectory is likely to want a page soon
        pages = self._slots.allocate(n_new + self._n_draft_pages) if self._has_room(n_new, headroom) else None
        if pages is None:
            self._slots.release([*known.pages, *([known.partial] if known.partial >= 0 else [])])
            return False
        trajectory.draft_pages = [pages.pop() for _ in range(self._n_draft_pages)]
        if known.partial >= 0:
            self._copy_page(known.partial, pages[0])
            self._slots.release([known.partial])
        trajectory.pages = known.pages + pages
        trajectory.computed = known.n_tokens
        trajectory.is_shared = False
        self.cached_tokens += known.n_tokens
        return True

    def _has_room(self, n_new: int, headroom: int) -> bool:
        return self._slots.n_available >= n_new + self._n_draft_pages + headroom

    def _grow(self, trajectory: Trajectory, n_positions: int) -> bool:
        if trajectory.is_shared and not self._own_last_page(trajectory):
            return False
        missing = _n_pages(n_positions) - len(trajectory.pages)
        pages = self._slots.allocate(missing) if missing > 0 else []
        if pages is None:
            return False
        trajectory.pages.extend(pages)
        return True

    def _own_last_page(self, trajectory: Trajectory) -> bool:
        last = (trajectory.computed - 1) // PAGE
        if trajectory.computed % PAGE:
            own = self._slots.allocate(1)
            if own is None:
                return False
            self._copy_page(trajectory.pages[last], own[0])
            self._slots.release([trajectory.pages[last]])
            trajectory.pages[last] = own[0]
        trajectory.is_shared = False
        return True

    def _copy_page(self, source: int, target: int) -> None:
        self.pages.copy_pages(np.array([source], np.int32), np.array([target], np.int32))

    def _preempt(self, trajectory: Trajectory) -> None:
        self.running.remove(trajectory)
        self._give_up(trajectory)
        trajectory.computed = 0
        self.preemptions += 1
        bisect.insort(self.waiting, trajectory, key=_order)

    def _give_up(self, trajectory: Trajectory) -> None:
        self._slots.share(trajectory.token_ids[: trajectory.computed], trajectory.pages)
        self._slots.release([*trajectory.pages, *trajectory.draft_pages])
        trajectory.pages, trajectory.draft_pages, trajectory.is_shared = [], [], False


def _order(trajectory: Trajectory) -> tuple[int, int]:
    return (trajectory.request.priority, trajectory.arrival)


def _prefix(trajectory: Trajectory) -> bytes:
    """What has to be computed before the trajectory can decode."""
    return trajectory.token_ids[:-1].tobytes()
