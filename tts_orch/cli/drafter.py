"""`tts-orch drafter`: train draft heads for a target, compare them, and average them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from tts_orch.cli.data_part import DataPartType
from tts_orch.cli.settings import SectionedCommand, SettingOption, given_settings, merged, setting_option
from tts_orch.config import EngineConfig, LawConfig, load_config
from tts_orch.training.drafters.settings import DrafterTrainingConfig, DraftHeadSettings

__all__ = ["drafter"]

_GROUPS: Final[Mapping[str, type[Any]]] = {"head": DraftHeadSettings, "law": LawConfig, "engine": EngineConfig}
_SECTIONS: Final = {"head": "Head", "law": "Sampling of the target's own answers", "engine": "Engine"}


def _training_options() -> Iterator[SettingOption]:
    """Yield an option for every setting of a training, section by section."""
    yield from _data_options(*(name for name in DrafterTrainingConfig.model_fields if name not in _GROUPS))
    for group, settings in _GROUPS.items():
        for name, field in settings.model_fields.items():
            yield setting_option(_SECTIONS[group], (group, name), field)


def _data_options(*names: str) -> Iterator[SettingOption]:
    for name in names:
        field = DrafterTrainingConfig.model_fields[name]
        if name == "data":
            yield SettingOption("Data", (name,), "--data", DataPartType(), field.description or "", multiple=True)
        else:
            yield setting_option("Data", (name,), field)


def _evaluation_options() -> Iterator[SettingOption]:
    """Yield the options that choose held-out texts, and those that say where the target is."""
    yield from _data_options(
        "data", "data_folder", "answer_field", "cache", "template", "max_length", "held_out", "max_held_out", "seed"
    )
    for name in ("target", "device", "dtype"):
        yield setting_option(_SECTIONS["engine"], ("engine", name), EngineConfig.model_fields[name])


def _settings(context: click.Context, config: Path | None) -> Mapping[str, Any]:
    return merged({"engine": {}, **(load_config(config) if config else {})}, given_settings(context))


@click.group()
def drafter() -> None:
    """Train draft heads that continue a target's text, each for a domain."""


@drafter.command(cls=SectionedCommand, params=[*_training_options()])
@click.option("--config", type=click.Path(path_type=Path), help="YAML file of settings, a recipe; options win over it.")
@click.pass_context
def train(context: click.Context, /, config: Path | None, **_options: Any) -> None:
    """Train a draft head (EAGLE-2, HASS or EAGLE-3) for a target.

    \b
    Answers from a file
      tts-orch drafter train --data gsm8k_train.jsonl.gz:100000 --answer-field solution --target smollm2 --out runs/math

    \b
    The target's own answers to the prompts of two files, mixed half and half
      tts-orch drafter train --answers target --data math.jsonl:100000 --data chat.jsonl:100000 --target smollm2 --out runs/mixed

    \b
    By a recipe, with another loss, and with features that several trainings share
      tts-orch drafter train --config recipes/drafters/math.yaml --data-folder data --target smollm2 --loss hass \\
          --cache runs/cache --out runs/math

    \b
    A head that proposes the tokens of a domain alone
      tts-orch drafter train --config recipes/drafters/math.yaml --data-folder data --target smollm2 --loss eagle3 \\
          --vocabulary vocabularies/math/vocabulary.safetensors --out runs/math3

    \b
    Draft with it
      tts-orch run problems.jsonl --target smollm2 --drafter neural --drafters math=runs/math

    The target is frozen and read once; --out gets config.json and model.safetensors, training.jsonl and training.png with the
    loss and with how far greedy drafts would be right on held-out texts. Stopped by Ctrl-C or killed, the same command goes on
    where it was, with the same result.
    """  # noqa: D301
    from tts_orch.cli.drafter_training import train_drafter  # loaded late: --help must not wait for it

    train_drafter(DrafterTrainingConfig(**_settings(context, config)))


@drafter.command(name="eval", cls=SectionedCommand, params=[*_evaluation_options()])
@click.argument("heads", nargs=-1, type=click.Path(path_type=Path), required=True)
@click.option("--config", type=click.Path(path_type=Path), help="YAML file of settings, a recipe; options win over it.")
@click.pass_context
def evaluate(context: click.Context, /, heads: tuple[Path, ...], config: Path | None, **_options: Any) -> None:
    """Compare HEADS, folders of trained heads, on held-out texts of files: how far greedy drafts would be right.

    \b
    Example: two heads, each on both domains
      tts-orch drafter eval runs/math runs/chat --target smollm2 --config recipes/drafters/mixed.yaml --data-folder data

    Held out is the share that trainings with the same --held-out and template leave out. `tts-orch replay RUN --drafters ...`
    says what whole draft trees would have had accepted in a run.
    """  # noqa: D301
    from tts_orch.cli.drafter_evaluation import evaluate_heads  # loaded late: --help must not wait for it

    evaluate_heads(heads, DrafterTrainingConfig(**{"out": heads[0], **_settings(context, config)}))


@drafter.command()
@click.argument("heads", nargs=-1, type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the new head.")
def average(heads: tuple[Path, ...], out: Path) -> None:
    """Average the weights of HEADS, folders of heads that were trained alike, into one head.

    \b
    Example
      tts-orch drafter average runs/math runs/chat --out runs/averaged

    Heads of different domains lose most of what they know by it; it is here to be compared with.
    """  # noqa: D301
    from tts_orch.cli.drafter_averaging import average_heads  # loaded late: --help must not wait for it

    average_heads(heads, out)
