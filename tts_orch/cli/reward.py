"""`tts-orch reward`: train a process reward model, and make problems to try it with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import click

from tts_orch.cli.output_file import OutputFile
from tts_orch.cli.settings import SectionedCommand, SettingOption, given_settings, merged, setting_option
from tts_orch.config import EngineConfig, LawConfig, load_config
from tts_orch.training.settings import HeadSettings, RewardTrainingConfig, RolloutSettings

__all__ = ["reward"]

_MOST_PROBLEMS: Final = 10_000
_GROUPS: Final[Mapping[str, type[Any]]] = {
    "rollout": RolloutSettings,
    "head": HeadSettings,
    "law": LawConfig,
    "engine": EngineConfig,
}
_SECTIONS: Final = {"rollout": "Labels by rollouts", "head": "Head", "law": "Sampling", "engine": "Engine"}


def _training_options() -> Iterator[SettingOption]:
    """Yield an option for every setting of a training, section by section."""
    for name, field in RewardTrainingConfig.model_fields.items():
        if name not in (*_GROUPS, "problems"):
            yield setting_option("Data", (name,), field)
    for group, settings in _GROUPS.items():
        for name, field in settings.model_fields.items():
            yield setting_option(_SECTIONS[group], (group, name), field)


@click.group()
def reward() -> None:
    """Train a process reward model that judges the steps of solutions, for search to choose by."""


@reward.command(cls=SectionedCommand, params=[*_training_options()])
@click.argument("problems", type=click.Path(path_type=Path), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="YAML file of settings; options win over it.")
@click.pass_context
def train(context: click.Context, /, problems: Path | None, config: Path | None, **_options: Any) -> None:
    """Train a process reward head: a small map from the target's hidden state at the end of a step to a score.

    \b
    Labels from the target itself: it solves PROBLEMS, and completes its solutions from the end of every step; a step is as
    good as the share of completions that reach the right answer (Math-Shepherd)
      tts-orch reward problems train.jsonl
      tts-orch reward train train.jsonl --target smollm2 --template raw --stop Q: --out rewards/sums

    \b
    The target's own steps, held against the results of a reference solution's steps where PROBLEMS has them
      tts-orch reward train train.jsonl --estimate reference --rollouts 0 --solutions 16 ...

    \b
    Labels that somebody gave, a solution a line with prompt, steps and step_labels
      tts-orch reward train --labels prm_steps.jsonl.gz --target smollm2 --out rewards/steps

    \b
    Search with it
      tts-orch run test.jsonl --target smollm2 --method dvts --reward-model rewards/sums

    The target is frozen, so hidden states are computed once, and the head trains in seconds. A share of the problems is held
    out (of given labels also every problem flagged in_..., a public test set): the figures at the end and in config.json are
    about those. Stopped by Ctrl-C or killed, the same command goes on where it was, with the same result; --out/cache keeps
    rollouts, hidden states and checkpoints by their settings, so another layer or head needs no new rollouts.
    """  # noqa: D301
    from tts_orch.cli.reward_training import train_reward  # loaded late: --help must not wait for it

    settings = merged({"engine": {}, **(load_config(config) if config else {})}, given_settings(context))
    if problems:
        settings["problems"] = problems
    train_reward(RewardTrainingConfig(**settings))


@reward.command()
@click.argument("file", type=OutputFile())
@click.option(
    "--part", type=click.Choice(["train", "test"]), default="train", show_default=True, help="Which problems."
)
@click.option("-n", type=click.IntRange(1, _MOST_PROBLEMS), default=300, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Fixes the problems.")
@click.option(
    "--steps",
    type=click.IntRange(1, 3),
    multiple=True,
    default=(1, 2, 3),
    show_default=True,
    help="Steps of arithmetic; given several times, problems take turns.",
)
def problems(file: Path, part: Literal["train", "test"], n: int, seed: int, steps: tuple[int, ...]) -> None:
    """Write word problems that a very small model sometimes solves to FILE, a problem a line.

    \b
    Example: what a reward head is trained on, and what search is tried on
      tts-orch reward problems train.jsonl --part train -n 400
      tts-orch reward problems test.jsonl --part test -n 300

    Each prompt has three worked examples, with an empty line after every step; run them with --template raw --stop Q:. The
    parts share no problem: which numbers with which operations belong to which part is fixed, whatever the seed.
    """  # noqa: D301
    from tts_orch.atomic_file import write_atomically
    from tts_orch.json_lines import json_line
    from tts_orch.tasks.template_problems import template_problems

    made = template_problems(part, n, seed, steps)
    fields = ("id", "prompt", "answer", "step_answers", "domain")
    lines = ({name: getattr(one, name) for name in fields} for one in made)
    write_atomically(file, "".join(map(json_line, lines)))
    click.echo(f"written: {file}, {n} problems")
