"""What drafting a level takes by draft vocabulary and number of rows: the layer, the LM head, and choosing from its logits."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from taps_parts.results import identity, read_results
from torch import Tensor

from tts_orch.drafters.checkpoint import load_network
from tts_orch.drafters.draft_network import HeadNetwork, Layers, likeliest
from tts_orch.drafters.target_facts import target_facts
from tts_orch.json_lines import JsonLinesFile, JsonObject
from vocabulary_parts.recordings import VocabularyWorkshop
from vocabulary_parts.ways import ways

__all__ = ["LEVELS", "levels"]

LEVELS: Final = "levels.jsonl"
_SHAPES: Final = ((1, 1), (1, 2), (1, 8), (16, 2), (16, 8))
"""Trajectories, and nodes of a level of each."""
_CONTEXT: Final = 256
_LAWS_A_NODE: Final = 4  # as many tokens of a law as `NeuralDrafter` takes for each candidate
_REPEATS: Final = 25


def levels(arguments: argparse.Namespace) -> None:
    """Time a level of every way."""
    path = arguments.out / LEVELS
    done = {identity(result) for result in read_results(path)}
    target, results = VocabularyWorkshop(arguments).target, JsonLinesFile(path)
    facts = target_facts(target)
    settings = {"target": arguments.target, "device": str(target.device), "dtype": str(target.dtype)}
    for way in ways(arguments, target):
        row = f"{way.head}, {way.vocabulary}"
        key = {"loss": way.loss, "temperature": None, "row": row, "settings": settings, "heads": {row: way.digest}}
        if identity(key) not in done:
            network = load_network(way.folder, facts)
            shapes = [{"texts": b, "width": w, **_level(network, facts.hidden_size, b, w)} for b, w in _SHAPES]
            results.append({**key, "size": way.size, "shapes": shapes})
            took = [f"{1e3 * shape['level']:.2f}" for shape in shapes]
            print(f"{way.loss} {row}: {' '.join(took)} ms a level", flush=True)
    results.close()


@torch.inference_mode()
def _level(network: HeadNetwork, hidden_size: int, n_texts: int, width: int) -> JsonObject:
    """Return the median seconds of a level, and of its parts."""
    states, past = _context(network, hidden_size, n_texts)
    tokens, positions = torch.ones(2, n_texts, width, dtype=torch.int64).unbind()
    mask = torch.ones(n_texts, 1, width, _CONTEXT + width, dtype=torch.bool)
    states = states.expand(n_texts, width, -1).contiguous()
    rows = states.flatten(0, 1)
    layer = _median(lambda: network.read(tokens, states, _CONTEXT * positions, mask, past))
    head = _median(lambda: network.logits(rows))
    laws = _median(lambda: likeliest(network, rows, _LAWS_A_NODE * width))
    return {"level": layer + laws, "layer": layer, "head": head, "choice": max(laws - head, 0.0)}


def _context(network: HeadNetwork, hidden_size: int, n_texts: int) -> tuple[Tensor, Layers]:
    """Return the states `[b, 1, d]` behind some committed tokens, and their keys and values."""
    tokens = torch.ones(n_texts, _CONTEXT, dtype=torch.int64)
    features = network.project(torch.randn(n_texts, _CONTEXT, len(network.feature_layers) * hidden_size))
    mask = torch.ones(_CONTEXT, _CONTEXT, dtype=torch.bool).tril().expand(n_texts, 1, -1, -1)
    states, past = network.read(tokens, features, torch.arange(_CONTEXT).expand(n_texts, -1), mask, [])
    return states[:, -1:], past


def _median(run: Callable[[], object]) -> float:
    """Return the median seconds of many calls, the first of which is left out."""
    seconds = []
    for _ in range(_REPEATS + 1):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds[1:]))
