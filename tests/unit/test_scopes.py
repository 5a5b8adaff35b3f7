"""Which candidates share draft statistics: the names of scopes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.records import Path, Problem, SamplingParams

LAW = SamplingParams(temperature=0.7)
CANDIDATES: list[tuple[Problem, Path]] = [
    (Problem("a", "?", domain="math"), (0,)),
    (Problem("a", "?", domain="math"), (1,)),
    (Problem("b", "?", domain="math"), (0,)),
    (Problem("c", "?"), (0,)),
    (Problem("d", "?"), (0,)),
]


def names(sharing: str = "problem", **settings: object) -> ScopeNames:
    return ScopeNames(DraftingConfig(statistics_scope=sharing, **settings), "w", "t")


@pytest.mark.parametrize(
    ("sharing", "groups"),
    [("request", [0, 1, 2, 3, 4]), ("problem", [0, 0, 1, 2, 3]), ("task", [0, 0, 0, 1, 1]), ("run", [0, 0, 0, 0, 0])],
)
def test_candidates_of_a_group_have_one_name(sharing: str, groups: list[int]) -> None:
    found = [names(sharing).name(problem, path, LAW) for problem, path in CANDIDATES]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(found))}
    assert [numbers[name] for name in found] == groups


def test_a_name_can_be_read_and_stays_the_same() -> None:
    assert names("task").name(CANDIDATES[0][0], (0,), LAW) == 'w/t/0/["task", "math"]'
    assert names("request").name(Problem("ü"), (0, 2), LAW) == 'w/t/0/["request", "ü", [0, 2]]'


@pytest.mark.parametrize("change", [{"weights_id": "v"}, {"tokenizer_id": "v"}, {"generation": "1"}])
def test_models_vocabularies_and_generations_share_nothing(change: dict[str, object]) -> None:
    problem, path = CANDIDATES[0]
    before = names("run")
    assert replace(before, **change).name(problem, path, LAW) != before.name(problem, path, LAW)


def test_settings_of_one_kind_are_no_name_of_another() -> None:
    odd = Problem('p", [0]')
    assert names("request").name(Problem("p"), (0,), LAW) != names("request").name(odd, (), LAW)
    assert names("task").name(Problem("p", domain=None), (), LAW) != names("task").name(
        Problem("p", domain="null"), (), LAW
    )


def test_the_law_parts_scopes_only_where_processed_laws_are_stored() -> None:
    problem, path = CANDIDATES[0]
    colder = SamplingParams(temperature=0.2, logit_bias=((3, float("-inf")),))
    assert names("run").name(problem, path, LAW) == names("run").name(problem, path, colder)
    processed = names("run", stored_law="processed")
    assert processed.name(problem, path, LAW) != processed.name(problem, path, colder)
    assert processed.name(problem, path, LAW) == processed.name(problem, path, SamplingParams(temperature=0.7))
