"""Which hidden states the members of a composed drafter want, and each one's columns of them.

Arrays are those of the target's tensor library; only what NumPy's and torch's have in common is asked of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.policies.drafting.draft_tree import Features

__all__ = ["columns_of", "union_of_layers"]


def union_of_layers(members: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the layers that any member wants, each once, in the order in which they are first wanted."""
    return tuple(dict.fromkeys(layer for layers in members for layer in layers))


def columns_of(features: Features, layers: tuple[int, ...], wanted: tuple[int, ...]) -> Features:
    """Return the hidden states of some layers, `[m, len(wanted) * d]`.

    Args:
        features: `[m, len(layers) * d]`.
        layers: which they are.
        wanted: layers among them, in the order in which they are wanted.
    """
    if wanted == layers:
        return features
    n = len(features)
    places = [layers.index(layer) for layer in wanted]
    return features.reshape(n, len(layers), -1)[:, places].reshape(n, -1)
