"""How many tokens a draft vocabulary gets by corpus and number of samples, and its file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tts_orch.atomic_file import write_atomically
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.engine.target import Target
from tts_orch.json_lines import JsonObject
from tts_orch.records import IntArray
from tts_orch.vocabulary.draft_flops import DraftFlops, draft_flops
from tts_orch.vocabulary.kept_tokens import kept_tokens
from tts_orch.vocabulary.ranked_tokens import RankedTokens, count_tokens, rank_tokens
from tts_orch.vocabulary.size_objective import SizeObjective, size_objective
from tts_orch.vocabulary.size_search import search_size
from tts_orch.vocabulary.vocabulary_file import VocabularyFile, write_vocabulary
from vocabulary_parts.corpora import CORPORA, FIXED, answers
from vocabulary_parts.recordings import VocabularyWorkshop

__all__ = ["CHOICES", "choices", "ranked_corpus", "vocabulary_path"]

CHOICES: Final = "choices.json"

_SAMPLES: Final = (300, 1000, 3000, 10_000)
_TRIALS, _SEED = 100, 42  # as published
_DELIMITERS: Final = ("\n\n",)

_PUBLISHED: Final = HeadConfig(
    architecture="eagle3",
    hidden_size=4096,
    intermediate_size=14_336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128_256,
    feature_layers=(2, 16, 29),
)
"""The drafter of Llama-3.1-8B, whose operations arXiv 2603.05210 prints."""


def vocabulary_path(out: Path, name: str) -> Path:
    """Return the file of a corpus' best vocabulary, or of the fixed one."""
    return out / "vocabularies" / f"{name}.safetensors"


def choices(arguments: argparse.Namespace) -> None:
    """Choose sizes and write the vocabularies; all of it anew, since it takes seconds."""
    target = VocabularyWorkshop(arguments).target
    own = draft_flops(HeadConfig.for_target(target.model.config.get_text_config(), architecture="eagle3"))
    sizes = []
    for corpus in CORPORA:
        texts = answers(corpus, arguments.data, arguments.out, target.tokenizer)
        for n in [*(n for n in _SAMPLES if n < len(texts)), len(texts)]:
            ranked = _ranked(texts[:n], target)
            sizes.append({"corpus": corpus, "samples": n, **_chosen(ranked, own, arguments)})
            print(sizes[-1], flush=True)
        _write(arguments, corpus, ranked, sizes[-1]["scan"], target)
        if corpus == CORPORA[0]:
            _write(arguments, FIXED, ranked, len(ranked.order) // 4, target)
    published = draft_flops(_PUBLISHED)
    operations = [_operations("Llama-3.1-8B", published, _PUBLISHED.vocab_size)]
    operations.append(_operations(arguments.target, own, target.vocab_size))
    content = {"sizes": sizes, "operations": operations, "alpha": arguments.alpha}
    write_atomically(arguments.out / CHOICES, json.dumps(content, indent=1) + "\n")


def ranked_corpus(corpus: str, arguments: argparse.Namespace, target: Target) -> RankedTokens:
    """Return a target's tokens in the order of all texts of a corpus."""
    return _ranked(answers(corpus, arguments.data, arguments.out, target.tokenizer), target)


def _ranked(texts: Iterable[IntArray], target: Target) -> RankedTokens:
    kept = kept_tokens(target.tokenizer, target.vocab_size, target.eos_ids, _DELIMITERS, ())
    return rank_tokens(count_tokens(texts, target.vocab_size), {i for ids in kept.values() for i in ids})


def _chosen(ranked: RankedTokens, flops: DraftFlops, arguments: argparse.Namespace) -> JsonObject:
    """Return the sizes by both searches, and what they are worth."""
    objective = size_objective(ranked, flops, arguments.alpha, arguments.min_coverage)
    sampled, best = search_size(objective, _TRIALS, _SEED), objective.best_size()
    return {
        "tokens": int(ranked.counts.sum()),
        "distinct": int((ranked.counts > 0).sum()),
        "kept": ranked.n_kept,
        "tpe": sampled,
        "scan": best,
        "gap": 1 - objective.value(sampled) / objective.value(best),
        **_worth(objective, best),
    }


def _worth(objective: SizeObjective, size: int) -> JsonObject:
    return {
        "coverage": float(objective.coverage[size]),
        "saving": float(objective.saving[size]),
        "utility": objective.utility(size),
    }


def _write(arguments: argparse.Namespace, name: str, ranked: RankedTokens, size: int, target: Target) -> None:
    vocabulary = ranked.vocabulary(size)
    provenance = {
        "texts": name,
        "target_weights_id": target.weights_id,
        "tokens": int(ranked.counts.sum()),
        "alpha": arguments.alpha,
        "min_coverage": arguments.min_coverage,
        "coverage": float(ranked.coverage[size]),
    }
    path = vocabulary_path(arguments.out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_vocabulary(path, VocabularyFile(vocabulary, ranked.counts[vocabulary.ids], provenance))


def _operations(name: str, flops: DraftFlops, vocab_size: int) -> JsonObject:
    head = flops.vocabulary_row * vocab_size
    return {"name": name, "vocabulary": vocab_size, **flops._asdict(), "head": head, "total": flops.total(vocab_size)}
