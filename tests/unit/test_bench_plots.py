"""What plots show, without looking at pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.figure
import pytest

from tts_orch.bench.plots import draw_plots


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Figures by the name of the file that they were saved to."""
    saved: dict[str, Any] = {}

    def save(figure: matplotlib.figure.Figure, path: Path, dpi: int) -> None:
        figure.draw_without_rendering()
        saved[path.stem] = figure

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", save)
    return saved


def row(workload: str, label: str, curve: list[float], *, is_real: bool = False) -> dict[str, Any]:
    key = {"workload": workload, "label": label, "temperature": 0.7, "nodes": 80, "lockstep": 1, "is_real": is_real}
    return {**key, "tau_by_index": curve, "acceptance_at_depth": curve, "draft_nodes": 9, "nodes_a_step": 3.0, "tau": 2}


REPLAYED = [row("a", "PLD", [1.0, 2.0, 3.0]), row("b", "PLD", [2.0]), row("a", "ANPD", [1.5, 1.5, 1.5])]
REAL = [
    *(row(workload, "TR", [2.0, 2.0], is_real=True) for workload in "abcd"),
    *(row(workload, "PLD", [1.0, 1.5]) for workload in "abcd"),
]


def test_legends_hide_no_curve(figures: dict[str, Any], tmp_path: Path) -> None:
    draw_plots({"replay": {"rows": REPLAYED}, "real": {"rows": REAL}}, tmp_path)
    assert set(figures) == {"tau_by_index", "tau_by_index_real", "tau_by_nodes", "acceptance_by_depth"}
    for figure in figures.values():
        (legend,) = figure.legends
        frame = legend.get_window_extent()
        assert not any(frame.overlaps(axes.get_window_extent()) for axes in figure.axes)
        assert not any(axes.get_legend() for axes in figure.axes)


def test_real_runs_are_whole_lines_and_replays_dashes_in_a_panel_a_workload(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    draw_plots({"real": {"rows": REAL}}, tmp_path)
    figure = figures["tau_by_index_real"]
    assert [axes.get_title().partition(",")[0] for axes in figure.axes] == ["a", "b", "c", "d"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["TR", "PLD"]
    for axes in figure.axes:
        real, replayed = axes.lines
        assert (real.get_linestyle(), replayed.get_linestyle()) == ("-", "--")
        assert (real.get_ydata().tolist(), replayed.get_ydata().tolist()) == ([2.0, 2.0], [1.0, 1.5])


def test_shorter_curves_end_their_own_mean_and_mean_no_acceptance_at_depths(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    draw_plots({"replay": {"rows": REPLAYED}}, tmp_path)
    by_index, by_depth = (figures[name].axes[0].lines[0] for name in ("tau_by_index", "acceptance_by_depth"))
    assert by_index.get_ydata().tolist() == [1.5, 2.0, 3.0]
    assert by_depth.get_ydata().tolist() == [1.5, 1.0, 1.5]
