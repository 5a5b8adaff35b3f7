"""What the README and the examples show must work; only the model is missing here."""

from __future__ import annotations

import asyncio
import functools
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

import tts_orch
from tests.finished_runs import finished_run
from tests.toys import save_toy
from tts_orch.config import MajorityVote, load_config
from tts_orch.method_config import OwnMethod
from tts_orch.orchestrator import Orchestrator
from tts_orch.policies.search.majority_vote import majority_vote
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.testing import FakeSearchContext, fake_candidate
from tts_orch.training.drafters.given_answers import read_given_answers

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "own_policy.py")
DRAFTER = str(ROOT / "examples" / "own_drafter.py")
Script = dict[tuple[int, ...], "str | Candidate | None"]


def failure(*path: int) -> Candidate:
    return replace(fake_candidate("trap", finish_reason=FinishReason.ERROR), path=path)


def ask(script: Script, *config: OwnMethod) -> tuple[SearchResult, FakeSearchContext]:
    policy = runpy.run_path(EXAMPLE)["ask_until_agreed"]
    context = FakeSearchContext(script)
    return asyncio.run(policy(Problem("p", "3 + 4?"), context, *config)), context


def second_round(*answers: str | None) -> Script:
    return {(1, i): answer for i, answer in enumerate(answers)}


def test_two_that_agree_are_enough() -> None:
    result, context = ask({(0, 0): "7", (0, 1): "7"})
    assert (result.answer, result.chosen) == ("7", (0, 0))
    assert context.finished == [(0, 0), (0, 1)]


def test_two_that_disagree_ask_for_more() -> None:
    result, context = ask({(0, 0): "7", (0, 1): "8", **second_round("8", "8", None, "7", "8", "8")})
    assert (result.answer, result.chosen) == ("8", (0, 1))
    assert len(context.finished) == 8
    assert [candidate.path for candidate in result.candidates] == sorted(context.finished)


def test_a_registered_policy_gets_its_settings() -> None:
    script = {(0, 0): "7", (0, 1): "8", **second_round("7", "7")}
    result, _ = ask(script, OwnMethod(policy="until_agreed", n=4))
    assert (result.answer, len(result.candidates)) == ("7", 4)


def test_failures_and_abstentions_do_not_agree() -> None:
    script: Script = {(0, 0): failure(0, 0), (0, 1): failure(0, 1), **second_round(None, "9", None, None, None, None)}
    result, _ = ask(script)
    assert (result.answer, result.chosen, len(result.candidates)) == ("9", (1, 1), 8)
    nothing, _ = ask({(0, 0): None, (0, 1): None, **second_round(*[None] * 6)})
    assert (nothing.answer, nothing.chosen) == (None, None)


@pytest.fixture
def orchestrator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a fake in the place of `Orchestrator` that takes the same arguments and answers every prompt with 391."""

    def search(problem: str, method: Any, **options: Any) -> SearchResult:
        context = FakeSearchContext({path: "391" for i in range(16) for path in ((i,), (0, i))})
        policy = functools.partial(majority_vote, config=method) if isinstance(method, MajorityVote) else method
        result = asyncio.run(policy(Problem("p", problem), context))
        n_tokens = context.generated_tokens
        return replace(result, generated_tokens=n_tokens, verify_steps=n_tokens)

    fake = create_autospec(Orchestrator)
    instance = fake.return_value
    instance.__enter__.return_value = instance
    instance.__exit__.return_value = None
    instance.search.side_effect = search
    monkeypatch.setattr(tts_orch, "Orchestrator", fake)
    return fake


def test_example_runs_as_a_program(orchestrator: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(EXAMPLE)["main"]("What is 17 * 23?")
    assert capsys.readouterr().out == "391 by 2 candidates\n"
    orchestrator.assert_called_once_with(target="smollm2")


def test_the_drafter_repeats_what_followed_the_last_token_last_time() -> None:
    text = runpy.run_path(DRAFTER)["FollowedText"]()
    text.append([5, 6, 7, 5, 8, 9])
    assert text.draft(4).token.tolist() == [9], "9 is new"
    text.append([5])
    assert text.draft(2).token.tolist() == [5, 8, 9]
    assert text.draft(9).token.tolist() == [5, 8, 9, 5]


def test_the_drafter_is_measured_on_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(DRAFTER)["main"](str(finished_run(tmp_path / "run", save_toy(tmp_path / "toy"))))
    (_, lookup), (name, tau) = (line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert name == "LastTime"
    assert float(tau.split()[0]) > 1, "some of its drafts are right"
    assert lookup.endswith("tokens committed per verify step")


def test_texts_of_the_example_suit_the_smallest_recipe() -> None:
    (part,) = load_config(ROOT / "recipes/drafters/tiny.yaml")["data"]
    answers = read_given_answers(ROOT / "examples/drafting" / part["file"], "answer")
    assert len({one.problem.id for one in answers}) == len(answers) == 12
    n_words = sum(len(one.answer.split()) for one in answers)
    assert n_words > 1.5 * part["tokens"], "enough are left where a fifth and more is held out"


def test_block_of_the_readme_runs(orchestrator: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "391 {'391': 16.0}",
        "1.00 tokens committed per verify step, 16 tokens in all",
    ]
    assert orchestrator.call_count == 1
