"""What the runs of a report are: target, method, law, and the versions that they were made with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tts_orch.reporting.markup import Content, Markup, element
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.tables import named_run, table

__all__ = ["runs_section"]


def runs_section(runs: Sequence[ReportedRun]) -> Markup:
    """Return the settings of all runs, a column of a table each."""
    names = list(dict.fromkeys(name for run in runs for name, _ in _facts(run)))
    facts = [dict(_facts(run)) for run in runs]
    rows: list[list[Content]] = [[name, *(values.get(name, "–") for values in facts)] for name in names]
    header: list[Content] = ["", *(named_run(number, run.label) for number, run in enumerate(runs))]
    return element("details", element("summary", "Settings of the runs"), table(header, rows))


def _facts(run: ReportedRun) -> Iterator[tuple[str, str]]:
    config, manifest = run.config, run.manifest
    yield "folder", str(run.folder)
    yield "made", manifest.created
    yield "problems", str(config.problems)
    yield "target", config.engine.target
    for part in (config.method, config.law):
        for name, value in part.model_dump(mode="json").items():
            yield name, str(value)
    if config.reward:
        yield "reward model", config.reward.model or config.reward.kind
    yield "seed", str(config.seed)
    yield "template", config.template
    yield "drafter", ", ".join(config.engine.members) or "none"
    if len(config.engine.members) > 1:
        yield "routing", config.engine.chosen_routing
    yield "verification", config.engine.verification
    yield "numerics", str(manifest.target.get("numerics", "–"))
    yield "versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
