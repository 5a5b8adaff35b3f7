"""`tts-orch tree`: learn a static draft tree from finished runs, and look at one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from tts_orch.cli.output_file import OutputFile
from tts_orch.errors import ConfigError

__all__ = ["tree"]

_RUN_FOLDER: Final = click.Path(path_type=Path)
_NODES: Final = click.IntRange(1, 1000)
_ENOUGH_STEPS: Final = 500  # below it, what is accepted often is mostly a matter of luck


@click.group()
def tree() -> None:
    """Learn static draft trees from finished runs, and show them."""


@tree.command()
@click.argument("runs", nargs=-1, required=True, type=_RUN_FOLDER)
@click.option("--nodes", "n_nodes", type=_NODES, default=80, show_default=True, help="Nodes to keep.")
@click.option("--out", type=OutputFile(), default=Path("tree.json"), show_default=True, help="File to write.")
@click.option("--initial-nodes", type=_NODES, default=625, show_default=True, help="Nodes to choose from.")
@click.option("--initial-depth", type=click.IntRange(1), default=20, show_default=True, help="Their deepest level.")
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of each run's problems, the last ones, that the tree is not learned from but measured on.",
)
@click.option(
    "--measure-on",
    "measured_runs",
    multiple=True,
    type=_RUN_FOLDER,
    help="Run folder that the tree is only measured on, such as one of another domain; may be given several times.",
)
@click.option(
    "--verification",
    type=click.Choice(["keyed", "rejection"]),
    default="keyed",
    show_default=True,
    help="keyed replays the runs; rejection decodes their problems anew: slow, and each tree is measured on other texts.",
)
@click.option("--limit", type=click.IntRange(1), help="Take the first so many problems of each run only.")
def optimize(out: Path, **settings: Any) -> None:
    """Learn a draft tree from what is accepted in RUNS, folders of `tts-orch run` with keyed verification.

    \b
    Example: 16 samples of each of 4 problems, 3 to learn from and 1 to measure on
      tts-orch run gsm8k_train.jsonl --target smollm2 --method best_of_n -n 16 --limit 4 --out runs/tree
      tts-orch tree optimize runs/tree --out tree.json
      tts-orch run problems.jsonl --target smollm2 --method best_of_n \\
          --no-node-budget --max-nodes 80 --draft-tree tree.json
    """  # noqa: D301
    from tts_orch.cli.tree_drawing import summary  # loaded late: --help must not wait for them
    from tts_orch.cli.tree_learning import TreeSettings, learn_tree
    from tts_orch.policies.drafting.tree_file import write_tree

    chosen = TreeSettings(**settings)
    if chosen.n_nodes > chosen.initial_nodes:
        raise ConfigError(
            f"--nodes: {chosen.n_nodes} of {chosen.initial_nodes} --initial-nodes; keep fewer, or offer more"
        )
    _check_given_once([*chosen.runs, *chosen.measured_runs])
    console = Console()
    learned = learn_tree(chosen, console)
    write_tree(out, learned)
    if learned.verify_steps < _ENOUGH_STEPS:
        console.print(
            f"learned from only {learned.verify_steps} verify steps: expect little of it, and give runs with more tokens",
            soft_wrap=True,
            highlight=False,
        )
    console.print(summary(learned))
    use = f"--no-node-budget --max-nodes {learned.n_nodes} --draft-tree {out}"
    console.print(f"\n{out}: use it with `tts-orch run ... {use}`", soft_wrap=True, highlight=False)


def _check_given_once(folders: Sequence[Path]) -> None:
    """Refuse a run that would count twice, or be measured on what was learned from it.

    Raises:
        ConfigError: names it.
    """
    real = [folder.resolve() for folder in folders]
    for number, folder in enumerate(folders):
        if real[number] in real[:number]:
            raise ConfigError(f"{folder}: given twice; a run is learned from once, or only measured on")


@tree.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
def show(file: Path | None) -> None:
    """Draw the learned tree of FILE, or the one of the package, and print where it comes from and what it is worth."""
    from tts_orch.cli.tree_drawing import drawing, summary
    from tts_orch.policies.drafting.tree_file import DEFAULT_TREE, read_learned_tree

    learned = read_learned_tree(file or DEFAULT_TREE)
    console = Console(highlight=False)
    console.print(drawing(learned), summary(learned), sep="\n")
    law = f"{learned.verification} verification of {learned.target} at T={learned.law.temperature:g}"
    console.print(f"\n{law}; made by `{learned.command}`", soft_wrap=True)
