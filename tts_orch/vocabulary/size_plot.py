"""What sizes of a draft vocabulary are worth, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.figures import load_figures
from tts_orch.vocabulary.size_objective import SizeObjective

__all__ = ["draw_sizes"]

_STYLES: Final = ("--", ":", "-.")


def draw_sizes(
    objective: SizeObjective,
    held_out: NDArray[np.float64] | None,
    chosen: Mapping[str, int],
    tokens_per_second: Mapping[int, float],
    file: Path,
) -> None:
    """Draw coverage, saving and utility by size, with the sizes that were chosen.

    Args:
        objective: by size.
        held_out: `[V + 1]` coverage of texts that were not counted; None without any.
        chosen: sizes by who chose them.
        tokens_per_second: measured, by size; none if nothing was.
        file: to write.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure = load_figures().Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    sizes = _sizes(len(objective.coverage) - 1)
    curves = {
        "coverage": objective.coverage[sizes],
        "saving": objective.saving[sizes],
        "utility": [objective.utility(int(size)) for size in sizes],
        **({} if held_out is None else {"coverage of held-out texts": held_out[sizes]}),
    }
    for name, values in curves.items():
        axes.plot(sizes, values, label=name)
    axes.axhline(
        objective.min_coverage, color="grey", linewidth=0.8, label=f"least coverage {objective.min_coverage:g}"
    )
    for (name, size), style in zip(chosen.items(), _STYLES, strict=False):
        axes.axvline(size, color="black", linewidth=1, linestyle=style, label=f"{name}: {size}")
    axes.set(xscale="log", xlabel="tokens of the draft vocabulary", ylabel="share", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    if tokens_per_second:
        _draw_speeds(axes, tokens_per_second)
    figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=120)


def _sizes(vocab_size: int) -> Any:
    return np.unique(np.geomspace(1, vocab_size, 400).astype(np.int64))


def _draw_speeds(axes: Any, tokens_per_second: Mapping[int, float]) -> None:
    speeds = axes.twinx()
    speeds.plot(
        tokens_per_second.keys(),
        tokens_per_second.values(),
        "o-",
        color="tab:purple",
        label="tokens a second, measured",
    )
    speeds.set(ylabel="tokens a second", ylim=(0, 1.1 * max(tokens_per_second.values())))
