"""The candidates of a problem that were sampled whole."""

from __future__ import annotations

from collections.abc import Iterator

from tts_orch.records import Candidate
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.recorded_search import RecordedSearch
from tts_orch.reporting.wording import counted, dotted, verdict, written_answer
from tts_orch.results import ProblemResult

__all__ = ["candidate_list"]


def candidate_list(result: ProblemResult, search: RecordedSearch) -> Markup:
    """Return what the journal has of a problem's candidates, those that voting had not asked for too."""
    verdicts = dict(zip(result.candidate_paths, result.candidate_correct, strict=False))
    scores = dict(zip(result.candidate_paths, result.candidate_scores, strict=False))
    items = [
        _candidate(candidate, verdicts.get(path), scores.get(path), path == result.chosen)
        for path, candidate in sorted(search.candidates.items())
    ]
    return element("ol", *items, class_="candidates")


def _candidate(candidate: Candidate, is_correct: bool | None, score: float | None, is_chosen: bool) -> Markup:
    summary = element(
        "summary",
        verdict(is_correct),
        element("span", dotted(candidate.path)),
        element("b", "★", title="chosen", class_="sign") if is_chosen else None,
        element("bdi", written_answer(candidate.answer), class_="answer"),
        None if score is None else element("span", f"{score:.3f}", title="score", class_="score"),
        element("span", ", ".join(_facts(candidate)), class_="faint"),
    )
    return element("li", element("details", summary, element("pre", candidate.text.strip("\n") or candidate.message)))


def _facts(candidate: Candidate) -> Iterator[str]:
    yield str(candidate.finish_reason).replace("_", " ")
    yield counted(candidate.n_new, "token")
    yield f"tau {candidate.tau:.2f}"
    yield f"self-certainty {candidate.self_certainty:.2f}"
