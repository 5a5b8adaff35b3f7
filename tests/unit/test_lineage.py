"""How many of the generated tokens are kept."""

from __future__ import annotations

from tts_orch.actors._lineage import Lineage
from tts_orch.records import Candidate, FinishReason, Path


def grown(path: Path, parent: Path, n_before: int, n_new: int) -> Candidate:
    tokens = (0,) * (n_before + n_new)
    return Candidate("p", path, 0, tokens, "", FinishReason.EOS, parent=parent, n_before=n_before)


def lineage_of(*candidates: Candidate) -> Lineage:
    lineage = Lineage()
    for candidate in candidates:
        lineage.add(candidate)
    return lineage


def test_a_shared_beginning_counts_once_and_what_was_dropped_not_at_all() -> None:
    first, dropped = grown((0, 0, 0), (), 0, 10), grown((0, 0, 1), (), 0, 7)
    siblings = [grown((1, 0, child), (0, 0, 0), 10, 3) for child in range(2)]
    lineage = lineage_of(first, dropped, *siblings)
    assert lineage.n_tokens(siblings) == 10 + 3 + 3
    assert lineage.n_tokens([*siblings, first]) == 16
    assert lineage.n_tokens([]) == 0


def test_what_was_written_into_a_candidate_was_not_generated() -> None:
    thought, answer = grown((0,), (), 0, 40), grown((0, 0), (0,), 40 + 12, 5)  # twelve tokens ask for the answer
    assert lineage_of(thought, answer).n_tokens([answer]) == 45


def test_a_candidate_consists_of_those_that_it_goes_on_from() -> None:
    first, second, other = grown((0, 0), (), 0, 2), grown((1, 0), (0, 0), 2, 2), grown((0, 1), (), 0, 2)
    last = grown((2, 0), (1, 0), 4, 1)
    assert lineage_of(other, second, first).of(last) == [first, second, last]
    assert lineage_of(last).of(grown((2, 0), (2, 0), 5, 1)) == [grown((2, 0), (2, 0), 5, 1)], "a place given twice"
