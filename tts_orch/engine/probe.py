"""What a target is held to at load: its packed forward equals the stock one, and for `bitwise` equals itself bit for bit.

The probe runs whole forwards at the thread count in use: one token at a time, in one prefill, in chunks, and as trees
with wrong branches beside another sequence. Its logits' digest is the fingerprint.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from tts_orch.engine.packing import PAGE, Entry, pack
from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import IntArray

if TYPE_CHECKING:
    from tts_orch.engine.target import Target

__all__ = ["fingerprint", "is_bit_stable", "matches_stock", "probe_tokens"]

_LENGTH = 72
"""Tokens of the probe: more than a page, so that pages are merged. A model that reads less is probed with less."""
_N_IN_TREES = 6
"""How many of them come once more as nodes of a tree."""


def probe_tokens(vocab_size: int, context_limit: int) -> IntArray:
    """Return `[n]` the probe's tokens: fixed, spread over the vocabulary, no more than the model can read."""
    n = min(_LENGTH, context_limit)
    steps = np.arange(1, n + 1, dtype=np.int64)
    return ((steps * 7919 + 31) % vocab_size).astype(np.int32)


def _prefill(target: Target, tokens: IntArray, sizes: list[int]) -> torch.Tensor:
    """Return the logits of all tokens, computed in chunks of these sizes."""
    pages, logits, start = target.new_pages(-(-len(tokens) // PAGE)), [], 0
    for size in sizes:
        chunk = tokens[start : start + size]
        logits.append(target.forward(pack([Entry(chunk, start, list(range(-(-len(tokens) // PAGE))))]), pages))
        start += size
    return torch.cat(logits)


def _in_trees(target: Target, tokens: IntArray) -> torch.Tensor:
    """Return the logits of the last tokens as nodes of trees with wrong branches, beside another sequence."""
    n, n_pages = len(tokens), -(-len(tokens) // PAGE)
    n_checked = min(_N_IN_TREES, n - 2)
    pages = target.new_pages(2 * n_pages + 2)
    first, second = list(range(n_pages)), list(range(n_pages, 2 * n_pages))
    root = n - n_checked
    other = tokens[::-1].copy()
    target.forward(pack([Entry(other[: n // 2], 0, second), Entry(tokens[: root - 1], 0, first)]), pages)
    tree = _bushy(tokens[root - 1 :], target.vocab_size)
    side = _bushy(other[n // 2 : n // 2 + 3], target.vocab_size)
    batch = pack(
        [
            Entry(other[n // 2 : n // 2 + 1], n // 2, second, side, [2 * n_pages]),
            Entry(tokens[root - 1 : root], root - 1, first, tree, [2 * n_pages + 1]),
        ]
    )
    logits = target.forward(batch, pages)
    return logits[side.n_nodes :][torch.from_numpy(np.arange(n_checked) * 2 + 1)]


def _bushy(path: IntArray, vocab_size: int) -> DraftTree:
    """Return a tree whose odd nodes follow `path` below its first token and whose even nodes are wrong siblings."""
    n = 2 * (len(path) - 1) + 1
    node = np.arange(n)
    depth = (node + 1) // 2
    parent = np.where(depth > 1, 2 * (depth - 1) - 1, 0)
    parent[0] = -1
    is_wrong = (node > 0) & (node % 2 == 0)
    token = (path[depth] + is_wrong * (1 + node % (vocab_size - 1))) % vocab_size
    return DraftTree(
        token=token.astype(np.int32),
        parent=parent.astype(np.int32),
        depth=depth.astype(np.int32),
        slot=is_wrong.astype(np.int32),
        log_q=np.zeros(n, np.float32),
        source=np.zeros(n, np.int32),
        kind=np.zeros(n, np.int32),
    )


def matches_stock(target: Target, tokens: IntArray, stock: torch.Tensor) -> bool:
    """Whether packed logits equal the stock forward's up to rounding of the weights' type."""
    in_trees = _in_trees(target, tokens)
    ours = torch.cat([_prefill(target, tokens, [len(tokens)]), in_trees])
    want = torch.cat([stock, stock[-len(in_trees) :]])
    spread = float(want.float().std()) or 1.0
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-3}.get(target.dtype, 0.25)
    return float((ours.float() - want.float()).abs().max()) <= tolerance * spread * 10


def is_bit_stable(target: Target, tokens: IntArray) -> bool:
    """Whether a row's logits are the same bits alone, in any chunking, and in a tree beside another sequence."""
    n = len(tokens)
    half, n_alone = n // 2, n // 8
    rest = n - half - n_alone
    whole, in_trees = _prefill(target, tokens, [n]), _in_trees(target, tokens)
    sizes = [half, rest // 3, rest - rest // 3, *[1] * n_alone]
    chunked = _prefill(target, tokens, [size for size in sizes if size])
    return torch.equal(whole, chunked) and torch.equal(whole[-len(in_trees) :], in_trees)


def fingerprint(target: Target) -> str:
    """Return a digest of the probe's logits and of what they were computed with."""
    tokens = probe_tokens(target.vocab_size, target.context_limit)
    logits = _prefill(target, tokens, [len(tokens)]).float().cpu().numpy()
    return hashlib.blake2b(logits.tobytes() + target.numerics.encode(), digest_size=8).hexdigest()
