"""`tts-orch bench drafting` as a function: run parts, keep their results, write tables and plots of all there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tts_orch.bench.offline_parts import OfflineParts
from tts_orch.bench.plan import BenchPlan, Part
from tts_orch.bench.plots import draw_plots
from tts_orch.bench.provenance import provenance
from tts_orch.bench.requirements import check_recordings, check_settings
from tts_orch.bench.results import ResultFolder
from tts_orch.bench.tables import tables
from tts_orch.errors import ConfigError
from tts_orch.json_lines import JsonObject

__all__ = ["redraw", "run_parts"]


def run_parts(plan: BenchPlan, parts: Sequence[Part], report: Callable[[str], None]) -> list[Path]:
    """Run parts in order and return the files that were written of everything in the folder.

    Args:
        plan: sizes and places.
        parts: which ones.
        report: told of progress, a line at a time.

    Raises:
        UserError: something that the parts need is not there.
    """
    check_settings(plan, parts)
    folder = ResultFolder(plan.out)
    check_recordings(plan, parts, folder)
    from tts_orch.bench.online_parts import OnlineParts  # loads torch, which a rerun of replays does not need

    offline, online = OfflineParts(plan, folder, report), OnlineParts(plan, folder, report)
    actions: dict[Part, Callable[[], JsonObject]] = {
        "record": online.record,
        "replay": offline.replay,
        "ablation": offline.ablation,
        "overlap": offline.overlap,
        "coupling": offline.coupling,
        "alternation": offline.alternation,
        "real": online.real,
        "timing": online.timing,
    }
    for part in parts:
        report(f"--- {part}")
        folder.write_part(part, actions[part](), provenance(plan))
        folder.write_all(tables(folder.read()))
    return _files(folder)


def redraw(path: Path) -> list[Path]:
    """Write tables and plots of what a folder has and return the files; nothing is measured.

    Raises:
        ConfigError: it has no results.
    """
    if not (path / "parts").is_dir():
        raise ConfigError(f"{path}: no results there; give the --out of a benchmark")
    folder = ResultFolder(path)
    folder.write_all(tables(folder.read()))
    return _files(folder)


def _files(folder: ResultFolder) -> list[Path]:
    """Draw the plots and return all files."""
    return [folder.path / "results.json", folder.path / "tables.md", *draw_plots(folder.read(), folder.path)]
