"""What `tts-orch vocabulary trim` does: count, choose a size, write the vocabulary and what speaks for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from transformers import AutoConfig, GenerationConfig

from tts_orch.cli.recovering import progress_bar
from tts_orch.cli.signals import heed_signals
from tts_orch.cli.training_folder import training_folder
from tts_orch.cli.vocabulary_measuring import sizes_measured
from tts_orch.cli.vocabulary_report import VocabularyReport
from tts_orch.cli.vocabulary_texts import CountedTexts, counted_texts
from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.engine.model_files import tokenizer_id
from tts_orch.engine.model_options import end_ids
from tts_orch.errors import ConfigError
from tts_orch.figures import load_figures
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.drafters.vocabulary_settings import VocabularyConfig
from tts_orch.vocabulary.draft_flops import draft_flops
from tts_orch.vocabulary.kept_tokens import kept_tokens
from tts_orch.vocabulary.ranked_tokens import RankedTokens, rank_tokens
from tts_orch.vocabulary.size_objective import size_objective
from tts_orch.vocabulary.size_search import search_size
from tts_orch.vocabulary.vocabulary_file import VocabularyFile, write_vocabulary

__all__ = ["trim_vocabulary"]

_FILE: Final = "vocabulary.safetensors"

logger = logging.getLogger(__name__)


def trim_vocabulary(config: VocabularyConfig, *, is_dry: bool) -> None:
    """Choose a draft vocabulary, print what it is worth, and write it.

    Args:
        config: all settings.
        is_dry: write nothing, and measure nothing.

    Raises:
        OrchestratorError: there is nothing to count, the target or the drafter cannot be read, or the folder not be written.
    """
    heed_signals()
    if is_dry and config.answers == "target":
        raise ConfigError(
            "--dry-run: the target's answers would have to be sampled first; leave it out, or count given ones"
        )
    load_figures()  # before the work, not after it
    console = Console()
    cache = config.cache_folder if config.answers == "target" else config.out
    folder = nullcontext() if is_dry else training_folder(config.out, cache)
    with folder, progress_bar(console) as bar:
        base = read_base_files(config.engine)
        text_config = AutoConfig.from_pretrained(base.folder).get_text_config()
        head = _head_config(config, base, text_config)
        texts = counted_texts(config, base, bar)
        kept = kept_tokens(
            base.tokenizer, head.vocab_size, _stop_ids(base, text_config), config.delimiters, config.keep
        )
        ranked = rank_tokens(texts.counts(head.vocab_size), {i for ids in kept.values() for i in ids})
        report = _report(config, head, texts, ranked, bar, is_measured=config.objective == "measured" and not is_dry)
    if not is_dry:
        provenance = _provenance(config, base, texts, kept, report)
        vocabulary = ranked.vocabulary(report.size)
        report.write(config.out, provenance)
        write_vocabulary(config.out / _FILE, VocabularyFile(vocabulary, ranked.counts[vocabulary.ids], provenance))
    _print(config, console, texts, report, is_dry=is_dry)


def _head_config(config: VocabularyConfig, base: BaseFiles, text_config: Any) -> HeadConfig:
    """Return the shape of the head whose operations count."""
    if config.drafter is None:
        return HeadConfig.for_target(text_config, architecture=config.architecture)
    head = read_head(config.drafter).config
    if head.target_weights_id not in ("", base.weights_id):
        raise ConfigError(f"{config.drafter}: a head for another target; give the target that it was trained for")
    if head.draft_vocab_size is not None:
        raise ConfigError(
            f"{config.drafter}: trimmed already, to {head.draft_vocab_size} tokens; give a head of all tokens"
        )
    return head


def _stop_ids(base: BaseFiles, text_config: Any) -> tuple[int, ...]:
    has_file = (base.folder / "generation_config.json").is_file()
    generation = GenerationConfig.from_pretrained(base.folder) if has_file else None
    return end_ids(generation, text_config, base.tokenizer)


def _report(
    config: VocabularyConfig,
    head: HeadConfig,
    texts: CountedTexts,
    ranked: RankedTokens,
    bar: Progress,
    *,
    is_measured: bool,
) -> VocabularyReport:
    """Choose by every means that is asked for."""
    flops = draft_flops(head)
    objective = size_objective(ranked, flops, config.alpha, config.min_coverage)
    if not objective.is_reachable:
        logger.warning(
            "min_coverage: %d tokens cover %.4f, and no more are kept; the largest size is taken",
            objective.largest,
            objective.coverage[objective.largest],
        )
    chosen = {"scan": objective.best_size(), "TPE": search_size(objective, config.trials, config.trial_seed)}
    speeds = []
    if is_measured and config.drafter:
        sizes = objective.spread_sizes(config.sizes)
        speeds = sizes_measured(config, config.drafter, ranked, sizes, texts.held_out, bar)
        chosen["measured"] = max(speeds, key=lambda one: one.tokens_per_second).size
    held_out = None
    if texts.held_out:
        held_out = ranked.coverage_of(texts.held_out_counts(head.vocab_size))
    else:
        logger.warning(
            "held_out: a share of %g is none of these %d texts, so that nothing says how much of other texts is covered; "
            "give more texts, or a larger share",
            config.held_out,
            len(texts.counted),
        )
    return VocabularyReport(objective, held_out, flops, chosen, speeds)


def _provenance(
    config: VocabularyConfig,
    base: BaseFiles,
    texts: CountedTexts,
    kept: Mapping[str, list[int]],
    report: VocabularyReport,
) -> dict[str, Any]:
    return {
        "target": config.engine.target,
        "target_weights_id": base.weights_id,
        "target_tokenizer_id": tokenizer_id(base.tokenizer),
        "answers": config.answers,
        "counted_tokens": texts.n_tokens,
        "held_out_tokens": texts.n_held_out_tokens,
        "alpha": config.alpha,
        "min_coverage": config.min_coverage,
        "chosen_by": "measured" if report.speeds else "scan",
        "head": str(config.drafter or config.architecture),
        **report.worth(report.size),
        "kept": {reason: len(ids) for reason, ids in kept.items()},
    }


def _print(
    config: VocabularyConfig, console: Console, texts: CountedTexts, report: VocabularyReport, *, is_dry: bool
) -> None:
    n_counted, n_held_out = sum(texts.n_tokens.values()), texts.n_held_out_tokens
    console.print(f"{n_counted:,} answer tokens counted, {n_held_out:,} held out", highlight=False)
    console.print(report.table())
    if report.speeds:
        console.print(report.speed_table())
    console.print(f"TPE misses {100 * report.gap:.2f} % of the best utility", highlight=False)
    if is_dry:
        console.print("nothing written")
    else:
        file = config.out / _FILE
        use = (
            f"`tts-orch vocabulary apply --vocabulary {file} ...`, train one by `tts-orch drafter train` with the same"
        )
        console.print(f"\n{config.out}: {report.size} tokens; trim a head by {use}", soft_wrap=True, highlight=False)
