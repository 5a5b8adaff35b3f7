"""Acceptance length and speed over the size of the draft vocabulary, on what the target really says in a head's domain."""

from __future__ import annotations

import argparse
from typing import Final

from taps_parts.results import identity, read_results

from tts_orch.config import EngineConfig
from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.engine.target import Target
from tts_orch.json_lines import JsonLinesFile
from tts_orch.replay.draft_sizes import WrittenText, measured_sizes
from vocabulary_parts.choices import ranked_corpus
from vocabulary_parts.recordings import VocabularyWorkshop
from vocabulary_parts.speed import TREES
from vocabulary_parts.ways import FULL, HEADS, HOME, Way, drafting, ways

__all__ = ["SIZES", "sizes"]

SIZES: Final = "sizes.jsonl"
_SMALLEST: Final = 256
_TREES: Final = "8 nodes"


def sizes(arguments: argparse.Namespace) -> None:
    """Draft what the target said at temperature 0 with every size that is a power of two, and with the whole vocabulary."""
    path = arguments.out / SIZES
    done = {identity(result) for result in read_results(path)}
    workshop, results = VocabularyWorkshop(arguments), JsonLinesFile(path)
    target = workshop.target
    settings = {name: getattr(arguments, name) for name in ("target", "problems", "tokens")}
    settings |= {"trees": _TREES, "device": str(target.device), "dtype": str(target.dtype)}
    whole = [one for one in ways(arguments, target) if one.vocabulary == FULL]
    for way, workload in ((one, workload) for one in whole for workload in HOME[one.head]):
        key = {"loss": way.loss, "workload": workload, "temperature": 0.0, "row": way.head}
        key |= {"settings": settings, "heads": {way.head: way.digest}}
        if identity(key) in done:
            continue
        texts = [WrittenText(one.prompt, one.tokens) for one in workshop.recording(workload, 0.0).trajectories]
        config = EngineConfig(target=arguments.target, **drafting(way, **TREES[_TREES]).model_dump())
        measured = measured_sizes(_networks(way, arguments, target), texts, target, config)
        results.append({**key, "sizes": [one._asdict() for one in measured]})
        print(f"{way.loss} {way.head} {workload}: {[(one.size, round(one.tau, 2)) for one in measured]}", flush=True)
    results.close()


def _networks(way: Way, arguments: argparse.Namespace, target: Target) -> dict[int, HeadNetwork]:
    """Return the head by size of its vocabulary, in the order of the corpus of its domain."""
    head, facts = read_head(way.folder), target_facts(target)
    ranked = ranked_corpus(HEADS[way.head], arguments, target)
    powers = (2**n for n in range(target.vocab_size.bit_length()))
    chosen = [size for size in powers if max(_SMALLEST, ranked.n_kept) <= size < target.vocab_size]
    networks = {size: head_network(trimmed_head(head, ranked.vocabulary(size)), facts) for size in chosen}
    return {**networks, target.vocab_size: head_network(head, facts)}
