"""`tts-orch vocabulary`: choose the tokens that a draft head may propose, trim a head to them, look at them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from tts_orch.cli.data_part import DataPartType
from tts_orch.cli.settings import SectionedCommand, SettingOption, given_settings, merged, setting_option
from tts_orch.config import DraftingConfig, EngineConfig, LawConfig, load_config
from tts_orch.training.drafters.vocabulary_settings import VocabularyConfig

__all__ = ["vocabulary"]

_TEXTS: Final = ("data_folder", "answers", "answer_field", "out", "cache", "template", "max_length", "held_out")
_CHOICE: Final = ("alpha", "min_coverage", "objective", "architecture", "drafter", "keep", "delimiters")
_TRIALS: Final = ("trials", "trial_seed", "sizes", "replay_tokens")
_DRAFTING: Final = ("max_nodes", "draft_depth", "draft_width")
_FILE: Final = click.Path(path_type=Path)


def _trim_options() -> Iterator[SettingOption]:
    """Yield an option for every setting, section by section."""
    fields = VocabularyConfig.model_fields
    yield SettingOption("Texts", ("data",), "--data", DataPartType(), fields["data"].description or "", multiple=True)
    yield SettingOption("Texts", ("runs",), "--run", _FILE, fields["runs"].description or "", multiple=True)
    for name in (*_TEXTS, "max_held_out", "seed"):
        yield setting_option("Texts", (name,), fields[name])
    for name in (*_CHOICE, *_TRIALS):
        yield setting_option("Size of the vocabulary", (name,), fields[name])
    for name, field in LawConfig.model_fields.items():
        yield setting_option("Sampling of the target's own answers", ("law", name), field)
    for name, field in EngineConfig.model_fields.items():
        if name not in DraftingConfig.model_fields or name in _DRAFTING:
            yield setting_option("Engine", ("engine", name), field)
    for name in ("workers", "address"):
        yield setting_option("Engine", (name,), fields[name])


@click.group()
def vocabulary() -> None:
    """Choose which tokens a draft head may propose, and trim heads to them."""


@vocabulary.command(cls=SectionedCommand, params=[*_trim_options()])
@click.option(
    "--config", type=_FILE, help="YAML file of settings, such as the recipe of a drafter; options win over it."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Count and choose, but write nothing and measure nothing.")
@click.pass_context
def trim(context: click.Context, /, config: Path | None, is_dry: bool, **_options: Any) -> None:
    """Choose a draft vocabulary: the tokens that answers consist of, as many as pay.

    \b
    For one domain, of the answers in a file
      tts-orch vocabulary trim --data gsm8k_train.jsonl.gz --answer-field solution --target smollm2 --out vocabularies/math

    \b
    Of the texts that a recipe trains a head on
      tts-orch vocabulary trim --config recipes/drafters/mixed.yaml --data-folder data --target smollm2 --out vocabularies/mixed

    \b
    Of what the target itself answers: new answers to a file of prompts, or those of a finished run
      tts-orch vocabulary trim --answers target --data prompts.jsonl:100000 --target smollm2 --out vocabularies/own
      tts-orch vocabulary trim --run runs/first --target smollm2 --out vocabularies/own

    \b
    By the clock, with a head on this device
      tts-orch vocabulary trim --config recipes/drafters/math.yaml --data-folder data --target smollm2 \\
          --objective measured --drafter runs/math --out vocabularies/math

    A head computes a logit for every token that it may propose, and most of its work is that. Few tokens make up most of what is
    written, so that a head of these alone is faster and seldom misses one; a token outside is still decoded, since the target
    decides over all of its own, but never drafted. Tokens are ranked by how often answers have them; special tokens, digits, the
    ends of texts and of steps come first. Utility = alpha x coverage + (1 - alpha) x saved operations (arXiv 2603.05210).

    --out gets vocabulary.safetensors for `drafter train --vocabulary` and `vocabulary apply`, report.json and vocabulary.png.
    """  # noqa: D301
    from tts_orch.cli.vocabulary_trimming import trim_vocabulary  # loaded late: --help must not wait for it

    given = merged({"engine": {}, **(load_config(config) if config else {})}, given_settings(context))
    trim_vocabulary(VocabularyConfig(**given), is_dry=is_dry)


@vocabulary.command()
@click.option("--drafter", type=_FILE, required=True, help="Folder of a head that may propose every token of the file.")
@click.option("--vocabulary", "file", type=_FILE, required=True, help="File of `tts-orch vocabulary trim`.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the new head.")
@click.option("--target", help="Whose head it is, by name or folder; published heads do not say.")
def apply(drafter: Path, file: Path, out: Path, target: str | None) -> None:
    """Trim a trained head to a draft vocabulary, without training.

    \b
    Example
      tts-orch vocabulary apply --drafter runs/math --vocabulary vocabularies/math/vocabulary.safetensors --out runs/math-trimmed
      tts-orch run problems.jsonl --target smollm2 --drafter neural --drafters math=runs/math-trimmed
    """  # noqa: D301
    from tts_orch.cli.vocabulary_applying import apply_vocabulary  # loaded late: --help must not wait for it

    apply_vocabulary(drafter, file, out, target)


@vocabulary.command()
@click.argument("file", type=_FILE)
def show(file: Path) -> None:
    """Print what the draft vocabulary of FILE is, and where it comes from."""
    from tts_orch.cli.vocabulary_contents import show_vocabulary  # loaded late: --help must not wait for it

    show_vocabulary(file)
