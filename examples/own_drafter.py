"""A drafter of your own: after each token, what followed it the last time. It is measured on a run that is over.

    tts-orch run problems.jsonl --target smollm2 --method best_of_n -n 4 --out runs/first
    python examples/own_drafter.py runs/first

No token of that run depends on its drafts, so it tells exactly which drafts of any drafter would have been accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tts_orch.engine.target import load_target
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.text_drafter import TextDrafter
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.recovery import FinishedRun, recover
from tts_orch.replay.replayer import replay


class LastTime(TextDrafter):
    """Repeats what followed the last token when it last stood in the text."""

    @property
    def priors(self) -> NDArray[np.float64]:
        """A guess of how often a draft token is right, for the node budget, which learns better while decoding."""
        return np.array([0.3])

    def model(self, start: TrajectoryStart) -> FollowedText:
        """Return an empty text; prompt and committed tokens are appended to it."""
        return FollowedText()


class FollowedText:
    """A text that knows where each of its tokens stood last."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._behind: dict[int, int] = {}

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token in token_ids:
            if self._tokens:
                self._behind[self._tokens[-1]] = len(self._tokens)
            self._tokens.append(token)

    def draft(self, n_nodes: int) -> DraftTree:
        """Return a chain of at most so many draft tokens; no chain where the last token is new."""
        start = self._behind.get(self._tokens[-1], len(self._tokens))
        return DraftTree.chain(self._tokens[-1], self._tokens[start : start + n_nodes])


def main(folder: str) -> None:
    """Print tau beside that of a drafter of the package."""
    recording = recover(FinishedRun.read(Path(folder)), load_target)
    for drafter in (PromptLookup(), LastTime()):
        acceptance = Acceptance()
        for steps in replay(recording, drafter, FixedSize(8)):
            acceptance.add(steps)
        print(f"{type(drafter).__name__}: {acceptance.tau:.2f} tokens committed per verify step")


if __name__ == "__main__":
    main(*sys.argv[1:])
