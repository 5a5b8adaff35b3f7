"""One problem: a line, and behind it the question, the votes, and the candidates or the search tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tts_orch.records import Problem
from tts_orch.reporting.candidate_list import candidate_list
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.outcomes import agreement, outcomes
from tts_orch.reporting.recorded_search import RecordedSearch
from tts_orch.reporting.search_tree import search_forest
from tts_orch.reporting.tree_map import tree_map
from tts_orch.reporting.tree_view import tree_view
from tts_orch.reporting.wording import amount, percent, shortened, verdict, written_answer
from tts_orch.results import ProblemResult

__all__ = ["problem_view"]


def problem_view(result: ProblemResult, problem: Problem | None, search: RecordedSearch | None, anchor: str) -> Markup:
    """Return a problem of a run.

    Args:
        result: what was found.
        problem: its text, None when it is not at hand.
        search: what the journal has of it, None to show the line alone.
        anchor: makes the ids in it unique in the page.
    """
    look = " ".join(["problem", *sorted(outcomes(result))])
    if search is None:
        return element("div", *_line(result), class_=f"{look} brief")
    parts = [_question(problem) if problem else None, _votes(result), *_search(result, search, anchor)]
    inside = element("div", *parts, class_="inside")
    return element("details", element("summary", *_line(result)), inside, class_=look)


def _line(result: ProblemResult) -> Iterator[Markup]:
    yield verdict(result.correct)
    yield element("bdi", result.problem_id, class_="name")
    yield element("bdi", written_answer(result.answer), class_="answer")
    if result.reference is not None:
        yield element("span", "right: ", element("bdi", shortened(result.reference, 40)), class_="faint")
    right_ones = f", {sum(result.candidate_correct)} of {result.n_candidates} right" if result.candidate_correct else ""
    stopped = f", stopped by {result.stopped_by}" if result.stopped_by else ""
    facts = f"agreement {percent(agreement(result))}{right_ones}, {amount(result.generated_tokens)} tokens{stopped}"
    yield element("span", facts, class_="faint")


def _question(problem: Problem) -> Markup:
    turns = [f"{turn.get('role')}: {turn.get('content')}" for turn in problem.messages or ()]
    text = problem.prompt if problem.prompt is not None else "\n\n".join(turns)
    return element("div", element("h4", "Problem"), element("pre", text))


def _votes(result: ProblemResult) -> Markup | None:
    if not result.votes:
        return None
    rows = [
        element("tr", element("td", element("bdi", written_answer(answer))), element("td", f"{weight:g}"))
        for answer, weight in result.votes.items()
    ]
    return element("div", element("h4", "Votes"), element("table", *rows))


def _search(result: ProblemResult, search: RecordedSearch, anchor: str) -> Sequence[Markup]:
    """Return the trees, or the list of candidates where no other ones were sampled."""
    is_flat = search.decisions.keys() <= set(result.candidate_paths)
    verdicts = dict(zip(result.candidate_paths, result.candidate_correct, strict=False))
    forest = () if is_flat else search_forest(search, result.chosen, verdicts)
    if forest:
        return element("h4", "Search"), tree_map(forest, anchor), tree_view(forest, anchor)
    return element("h4", "Candidates"), candidate_list(result, search)
