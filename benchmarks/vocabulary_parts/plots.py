"""Acceptance length, seconds of a level and speed over the size of the draft vocabulary, as a picture."""

from __future__ import annotations

import argparse
from typing import Final

from taps_parts.results import comparable, read_results

from tts_orch.figures import load_figures
from vocabulary_parts.sizes import SIZES

__all__ = ["plots"]

_PANELS: Final = {
    "tau": ("tau", 1.0),
    "level_seconds": ("drafting a level, ms", 1e3),
    "tokens_per_second": ("tokens/s", 1.0),
}


def plots(arguments: argparse.Namespace) -> None:
    """Draw a curve for every head and workload into --out."""
    figures = load_figures()
    for number, (cell, _) in enumerate(comparable(read_results(arguments.out / SIZES))):
        figure = figures.Figure(figsize=(14, 5), layout="constrained")
        for axes, (name, (title, scale)) in zip(figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True):
            for result in cell:
                label = f"{result['row']}, {result['workload']}"
                axes.plot(
                    [one["size"] for one in result["sizes"]],
                    [scale * one[name] for one in result["sizes"]],
                    marker="o",
                    label=label,
                )
            axes.set(xscale="log", xlabel="tokens of the draft vocabulary", title=title)
            axes.grid(alpha=0.3)
        figure.axes[0].legend(fontsize=8)
        settings = cell[0]["settings"]
        figure.suptitle(f"{cell[0]['loss']} heads for {settings['target']}, {settings['device']}, {settings['dtype']}")
        path = arguments.out / f"sizes-{cell[0]['loss']}{f'-{number}' if number else ''}.png"
        figure.savefig(path, dpi=150)
        print(path, flush=True)
