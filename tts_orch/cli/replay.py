"""`tts-orch replay`: how well drafters would have done in a run that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from tts_orch.cli.output_file import OutputFile
from tts_orch.cli.settings import SectionedCommand, drafting_options, given_settings
from tts_orch.cli.tree_choice import check_tree
from tts_orch.config import DraftingConfig, UntrainedName
from tts_orch.errors import ConfigError

if TYPE_CHECKING:
    from tts_orch.replay.problem_order import ProblemOrder

__all__ = ["replay"]

_DRAFTERS: Final = get_args(UntrainedName)
_NO_OPTIONS: Final = ("drafter", "drafter_placement", "draft_overlap", "verification", "node_budget")
_OF_SEVERAL: Final = frozenset({"routing", "routing_steps", "routing_probe_every"})


@click.command(cls=SectionedCommand, params=drafting_options(*_NO_OPTIONS))
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--drafter",
    "untrained",
    type=click.Choice(_DRAFTERS),
    multiple=True,
    help="Whom to replay; give it several times to compare. [default: stand, unless there are --drafters]",
)
@click.option(
    "--lockstep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Trajectories of a problem that are decoded together.",
)
@click.option("--alternating", is_flag=True, help="Let problems take turns instead of one after another.")
@click.option("--limit", type=click.IntRange(min=1), help="Take the first so many problems only.")
@click.option(
    "--node-budget",
    is_flag=True,
    help="Draft as many nodes as pay, up to --max-nodes, instead of max_nodes every time.",
)
@click.option(
    "--cost-curve",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What passes cost for --node-budget, a JSON list of [rows, seconds] pairs; without it the target is measured here.",
)
@click.option("--json", "json_file", type=OutputFile(), help="Write all figures to this file too.")
@click.pass_context
def replay(
    context: click.Context,
    /,
    run: Path,
    untrained: tuple[str, ...],
    lockstep: int,
    alternating: bool,
    limit: int | None,
    node_budget: bool,
    cost_curve: Path | None,
    json_file: Path | None,
    **_options: Any,
) -> None:
    """Measure what drafters would have had accepted in RUN, a folder of `tts-orch run`.

    \b
    Example: one drafter against another, 16 trajectories together as in a batch of 16
      tts-orch replay runs/first --drafter stand --drafter prompt_lookup --lockstep 16

    With keyed verification the tokens of a run do not depend on its drafts, so a finished run tells exactly which drafts of
    any drafter would have been accepted, with no model at hand. The first replay of a run loads its target once to compute
    the laws of the tokens, and keeps them in the run folder as recording.npz. Trained drafters (--drafters) need the target every
    time, for what they read of it. Each drafter is replayed alone, and with --routing once more all of them together.

    tau: tokens committed by a verify step, the one that needs no draft included. Length >= d: verify steps that accepted d
    draft tokens or more. Source: the n-gram order, match length or part of the drafter that a draft came from (of several
    drafters together, 16 more for each before it); how often it had a draft at hand, and how often a draft from there was right
    where it had one.
    """  # noqa: D301
    from tts_orch.cli.replaying import ReplaySettings, replay_run  # loaded late: --help must not wait for it

    if cost_curve and not node_budget:
        raise ConfigError("--cost-curve: only --node-budget reads it; add that, or leave the curve out")
    settings = {"node_budget": node_budget, **given_settings(context).get("drafting", {})}
    if node_budget and "draft_tree" in settings:
        raise ConfigError("--draft-tree: --node-budget chooses nodes by itself; leave one of both out")
    configs = _configs(untrained, settings)
    for config in configs.values():
        check_tree(config)
    order: ProblemOrder = "alternating" if alternating else "one_by_one"
    replay_run(ReplaySettings(run, configs, lockstep, order, limit, cost_curve, json_file))


def _configs(untrained: Sequence[str], settings: Mapping[str, Any]) -> dict[str, DraftingConfig]:
    """Return the settings of every drafter by its title in the tables: each alone, then all together where that is asked for.

    A draft tree goes to the drafter that drafts by it, if it is among them.
    """
    folders = settings.get("drafters", {})
    untrained = untrained or ([] if folders else ["stand"])
    alone = {name: value for name, value in settings.items() if name not in _OF_SEVERAL | {"drafters"}}
    others = {name: value for name, value in alone.items() if name != "draft_tree" or "stand" not in untrained}
    configs = {name: DraftingConfig(drafter=name, **(alone if name == "stand" else others)) for name in untrained}
    for name, folder in folders.items():
        configs[name] = DraftingConfig(drafter="neural", drafters={name: folder}, **others)
    if _OF_SEVERAL & settings.keys():
        if len(untrained) > 1:
            raise ConfigError(f"--routing: {' and '.join(untrained)} do not draft together; give one --drafter")
        together = DraftingConfig(drafter=untrained[0] if untrained else "neural", **settings)
        configs[f"routing {together.chosen_routing}"] = together
    return configs
