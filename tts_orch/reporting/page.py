"""The report of runs: one HTML page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from typing import Final, NamedTuple

from tts_orch.reporting.accuracy_section import accuracy_section
from tts_orch.reporting.agreement_section import agreement_section
from tts_orch.reporting.decoding_section import decoding_section
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.problems_section import problems_section
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.runs_section import runs_section
from tts_orch.reporting.sampling_section import sampling_section

__all__ = ["report_page"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"  # whatever a model wrote, nothing is loaded or run


def report_page(runs: Sequence[ReportedRun], shown: Sequence[Collection[str]]) -> str:
    """Return the page.

    Args:
        runs: at least one.
        shown: of each run the ids of the problems that are shown in full.

    Raises:
        RunFolderError: a journal is damaged.
    """
    title = f"tts-orch: {', '.join(run.label for run in runs)}"
    sections = [section for section in _sections(runs, shown) if section.content]
    links = [element("a", element("bdi", section.name), href=f"#{section.anchor}") for section in sections]
    parts = [element("section", section.content, id=section.anchor) for section in sections]
    body = element("body", element("h1", title), element("nav", *links), element("main", *parts))
    return "<!doctype html>\n" + element("html", _head(title), body, lang="en")


class _Section(NamedTuple):
    anchor: str
    name: str
    content: Markup | None


def _sections(runs: Sequence[ReportedRun], shown: Sequence[Collection[str]]) -> Iterator[_Section]:
    yield _Section("accuracy", "Accuracy", accuracy_section(runs))
    yield _Section("candidates", "More candidates", sampling_section(runs))
    yield _Section("decoding", "Decoding", decoding_section(runs))
    yield _Section("agreement", "Agreement", agreement_section(runs))
    for number, (run, ids) in enumerate(zip(runs, shown, strict=True)):
        yield _Section(f"run{number}", run.label, problems_section(number, run, ids))
    yield _Section("settings", "Settings", runs_section(runs))


def _head(title: str) -> Markup:
    style = resources.files("tts_orch.reporting").joinpath("report.css").read_text(encoding="utf-8")
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    )
