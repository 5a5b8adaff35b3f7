"""Which positions of prompts a drafter has been taught: those of each prompt once a scope, though many trajectories begin with it."""

from __future__ import annotations

import hashlib

import numpy as np

from tts_orch.engine.laws import RawStatistics
from tts_orch.engine.packing import Entry
from tts_orch.engine.trajectory import Trajectory
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.law_rows import text_rows

__all__ = ["PromptLessons"]


class PromptLessons:
    """Teaches drafters what follows the positions of prompts."""

    def __init__(self) -> None:
        self._taught: dict[tuple[str, bytes], int] = {}  # positions of a prompt that a scope has learned

    def teach_text(self, drafter: Drafter, trajectory: Trajectory) -> None:
        """Tell the drafter the text of the prompt, once a scope, and that of an output that nobody has counted."""
        request, token_ids, key = trajectory.request, trajectory.token_ids, _prompt_key(trajectory)
        last = request.prompt_length - 1  # what follows it is the trajectory's own
        for first, end in (
            (self._taught.get(key, 0), last),
            (max(trajectory.observe_from, last), len(token_ids) - 1),
        ):
            if first < end:
                text = text_rows(token_ids[first + 1 : end + 1])
                drafter.observe_prompt(request.candidate_id, first, *text)
        self._taught[key] = last

    def teach_laws(self, drafter: Drafter, trajectory: Trajectory, entry: Entry, statistics: RawStatistics) -> None:
        """Tell the drafter the laws of a prefill chunk, unless they are no laws."""
        if np.isnan(statistics.self_certainties).any():
            return
        start, probs = entry.start + entry.first_logit, np.exp(statistics.top_log_probs)
        drafter.observe_prompt(trajectory.request.candidate_id, start, statistics.top_ids, probs)
        taught = min(entry.start + len(entry.token_ids), trajectory.request.prompt_length)
        self._taught[_prompt_key(trajectory)] = taught

    def n_taught(self, trajectory: Trajectory) -> int:
        """Return how many positions of a trajectory, from its beginning, need not be taught again."""
        return max(trajectory.observe_from, self._taught.get(_prompt_key(trajectory), 0))

    def close_scope(self, scope: str) -> None:
        """Forget the prompts of a scope."""
        self._taught = {key: value for key, value in self._taught.items() if key[0] != scope}


def _prompt_key(trajectory: Trajectory) -> tuple[str, bytes]:
    request = trajectory.request
    prompt = request.token_ids[: request.prompt_length].tobytes()
    return request.scope, hashlib.blake2b(prompt, digest_size=16).digest()
