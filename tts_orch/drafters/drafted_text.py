"""What a neural drafter keeps of a trajectory: its tokens, the keys of its rows, and features that no row has read yet."""

from __future__ import annotations

import torch
from torch import Tensor

from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.kept_keys import KeptKeys, SharedPrefixes
from tts_orch.policies.drafting.draft_tree import TrajectoryStart
from tts_orch.policies.drafting.token_buffer import TokenBuffer
from tts_orch.records import IntArray

__all__ = ["DraftedText"]


class DraftedText:
    """A live trajectory.

    Features wait on the device until a draft needs them: at most those of a whole trajectory, where drafting rests.

    Args:
        start: how it began.
        network: drafts for it.
    """

    def __init__(self, start: TrajectoryStart, network: HeadNetwork) -> None:
        self.start = start
        self.tokens = TokenBuffer(start.token_ids)
        self.keys = KeptKeys()
        self._network = network
        self._features: list[Tensor] = []
        self._first_feature, self._n_features = 0, 0  # positions: of the first one that is kept, and behind the last

    @property
    def root(self) -> int:
        """The last committed token."""
        return int(self.tokens.tokens[-1])

    @property
    def n_rows(self) -> int:
        """Rows that its committed tokens have."""
        return len(self.tokens) - self._network.first_token

    def can_be_read(self, depth: int) -> bool:
        """Tell whether a tree of this depth fits into the network's context, and all features are there."""
        return self._has_features and self.n_rows > 0 and len(self.tokens) + depth <= self._network.max_context

    @property
    def _has_features(self) -> bool:
        if not self._network.feature_layers:
            return True
        return self._first_feature <= self.keys.n_rows and self._n_features >= self.n_rows

    def take_features(self, start: int, features: Tensor) -> None:
        """Keep the features of positions from `start` on, as long as no row has read them and they may be read at all."""
        if start != self._n_features:  # told anew, from further back
            self._features, self._first_feature = [], start
        self._n_features = start + len(features)
        if self._n_features < self._network.max_context:
            self._features.append(features)
        else:
            self._features = []

    def begin(self, shared: SharedPrefixes) -> None:
        """Take over rows of a text that begins alike, if none are there; the last row is always computed once more."""
        if not self.keys.n_rows:
            self.keys = shared.find(self.tokens.tokens, self._network.first_token)
        if self.keys.n_rows >= self.n_rows:
            self.keys = self.keys.prefix(self.n_rows - 1)

    def unread(self) -> tuple[IntArray, Tensor | None]:
        """Return the tokens whose rows are missing, and the features before them."""
        first = self.keys.n_rows
        tokens: IntArray = self.tokens.tokens[first + self._network.first_token :]
        if not self._network.feature_layers:
            return tokens, None
        features = torch.cat(self._features)[first - self._first_feature :]
        self._features, self._first_feature = [features], first
        return tokens, features

    def drop_features(self) -> None:
        """Forget features that rows have read; the last one stays, in case its row is computed once more."""
        if self._features:
            self._features, self._first_feature = [self._features[-1][-1:]], self._n_features - 1
