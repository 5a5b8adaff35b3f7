"""How the heads learned: loss and acceptance of held-out texts over steps, all heads of a kind in one picture."""

from __future__ import annotations

import argparse
from typing import Final

from taps_parts.rows import ROWS
from tts_orch.errors import RunFolderError
from tts_orch.figures import load_figures
from tts_orch.json_lines import JsonObject, read_json_lines

__all__ = ["plots"]

_PANELS: Final = {"loss": "loss of an answer token", "tau": "tau of a chain of five greedy drafts, held-out texts"}
_NAMES: Final = [row.name for row in ROWS if row.heads == (row.name,)]


def plots(arguments: argparse.Namespace) -> None:
    """Draw the curves of every kind of heads, a row each, into --out."""
    curves = {loss: _curves(arguments, loss) for loss in arguments.losses}
    if not any(curves.values()):
        raise RunFolderError(
            f"{arguments.heads}: no LOSS/NAME/training.jsonl in it; train heads first, or give --heads"
        )
    figure = load_figures().Figure(figsize=(11, 3.6 * len(curves)), layout="constrained")
    for axes, (loss, heads) in zip(figure.subplots(len(curves), 2, squeeze=False), curves.items(), strict=True):
        for panel, (field, title) in zip(axes, _PANELS.items(), strict=True):
            for name, reports in heads.items():
                panel.plot([one["step"] for one in reports], [one[field] for one in reports], label=name)
            panel.set(title=f"{loss}: {title}", xlabel="step")
            panel.grid(alpha=0.3)
            panel.legend()
    path = arguments.out / "training.png"
    figure.savefig(path, dpi=100)
    print(path, flush=True)


def _curves(arguments: argparse.Namespace, loss: str) -> dict[str, list[JsonObject]]:
    """Return the reports of the heads that were trained, by name."""
    files = {name: arguments.heads / loss / name / "training.jsonl" for name in _NAMES}
    return {name: [line.values for line in read_json_lines(file)] for name, file in files.items() if file.is_file()}
