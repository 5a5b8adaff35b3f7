"""The report: it shows what the folders hold, needs no network, and nothing that a model wrote becomes markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.searched_runs import searched_run
from tts_orch.cli import execute
from tts_orch.config import RunConfig, load_config
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.member_counts import member_shares
from tts_orch.records import Candidate, FinishReason
from tts_orch.reporting.accuracy_chart import accuracy_chart
from tts_orch.reporting.bars import Bar, bar_chart
from tts_orch.reporting.curves import Curve, Point, curve_chart
from tts_orch.reporting.markup import element
from tts_orch.reporting.outcomes import Outcome, agreement, outcomes
from tts_orch.reporting.page import report_page
from tts_orch.reporting.recorded_search import Decision, RecordedSearch, read_searches
from tts_orch.reporting.reported_run import read_runs
from tts_orch.reporting.scales import Axis, axis_over
from tts_orch.reporting.search_tree import SearchNode, search_forest
from tts_orch.reporting.wording import amount, percent
from tts_orch.results import ProblemResult
from tts_orch.run_folder import read_results

MAJORITY = {"name": "majority_vote", "n": 8}
DVTS = {"name": "dvts", "n": 8, "beam_width": 4}
METHODS = {
    "majority": MAJORITY,
    "best": {"name": "best_of_n", "n": 8},
    "dvts": DVTS,
    "beam": {"name": "beam_search", "n": 8, "beam_width": 4},
    "particles": {"name": "particle_filtering", "n": 8},
    "rebase": {"name": "rebase", "n": 8},
}
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """What a browser would see: elements must nest, and `links` are what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [value for name, value in attrs if name in ("href", "src", "action") and value]
        assert not [name for name in given if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page_of(*folders: Path) -> Page:
    runs = read_runs(folders)
    return Page(report_page(runs, [{result.problem_id for result in run.results} for run in runs]))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_that_needs_nothing_else(method: str, tmp_path: Path) -> None:
    page = page_of(searched_run(tmp_path / method, METHODS[method]))
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert all(link.startswith("#") for link in page.links)
    assert "script" not in page.tags
    assert "How many apples? (2)" in page.text


def test_runs_stand_side_by_side_with_their_differences(tmp_path: Path) -> None:
    page = page_of(*(searched_run(tmp_path / name, method) for name, method in METHODS.items()))
    rows = len(METHODS) * (len(METHODS) - 1) // 2
    assert page.text.count(f"Differences between runs, {rows}") == 1
    assert len(re.findall(r"[+-]\d+\.\d \([+-]\d+\.\d to [+-]\d+\.\d\) 3\b", page.text)) == rows
    assert page.text.count("pass@k: any is right") == 2 + 2 * 4  # two legends; marks of k = 1, 2, 4, 8


def test_a_folder_without_scores_has_no_curves_by_score(tmp_path: Path) -> None:
    page = page_of(searched_run(tmp_path / "majority", MAJORITY, has_rewards=False))
    assert "maj@k" in page.text
    assert "best@k:" not in page.text
    assert "reward model read" not in page.text


@pytest.mark.parametrize(
    ("settings", "measure"),
    [
        ({}, "majority_at"),
        ({"choice": "weighted"}, "weighted_at"),
        ({"choice": "borda"}, None),
        ({"stopping": {"name": "deepconf_offline"}}, None),
    ],
)
def test_smaller_runs_choose_as_the_run_does(settings: dict[str, Any], measure: str | None, tmp_path: Path) -> None:
    [run] = read_runs([searched_run(tmp_path / "votes", {**MAJORITY, **settings})])
    drawn = re.findall(r"votes, k = (\d): (\d+\.\d %)", accuracy_chart([(0, run)]))
    by_size = run.summary["accuracy"][measure] if measure else {}
    assert drawn == [(k, percent(by_size[k]["mean"])) for k in by_size if k != "8"]


def test_what_keeping_prefixes_saves_stands_beside_what_was_read(tmp_path: Path) -> None:
    folder = searched_run(tmp_path / "dvts", METHODS["dvts"])
    n_tokens = sum(result.generated_tokens for result in read_results(folder).values())
    read, whole = (amount(factor * n_tokens / 3) for factor in (2, 5))
    assert f" {read} {whole} " in page_of(folder).text
    for name in ("results.jsonl", "summary.json"):  # of a folder from before it was counted
        text = (folder / name).read_text()
        (folder / name).write_text(re.sub(r'"reward_tokens_whole": ?\d+,', "", text))
    assert f" {read} – " in page_of(folder).text


def test_several_drafters_have_a_chart_of_who_drafted(tmp_path: Path) -> None:
    alone, together = (searched_run(tmp_path / name, MAJORITY) for name in ("alone", "together"))
    assert "Draft nodes by drafter" not in page_of(alone).text
    path = together / "summary.json"
    counters = {"nodes_drafted_by_stand": 3000.0, "nodes_drafted_by_<math>": 1000.0, "nodes_accepted_by_<math>": 500.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), "drafters": member_shares(counters)}))
    text = page_of(alone, together).text
    assert "Draft nodes by drafter, share of each run" in text
    assert "together: drafted together: drafted: <math> 0.25 together: drafted: stand 0.75 4,000" in text
    assert "together: accepted together: accepted: <math> 1 500" in text


def test_drafters_that_are_gone_are_no_hindrance(tmp_path: Path) -> None:
    folder = searched_run(tmp_path / "run", MAJORITY)
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["engine"] |= {"drafters": {"math": str(tmp_path / "gone")}}
    path.write_text(yaml.safe_dump(config))
    assert "stand, math" in page_of(folder).text
    with pytest.raises(ConfigError, match="gone is no folder"):
        RunConfig(**load_config(path))


def test_nothing_that_a_model_wrote_becomes_markup(tmp_path: Path) -> None:
    evil = """</pre><script>alert(1)</script><img src=x onerror="alert(1)">' " &amp;"""
    folder = searched_run(tmp_path / "evil", DVTS, prompt=evil)
    evil += "\ud800"  # half a surrogate pair, as a damaged tokenizer may give it
    for name in ("candidates.jsonl", "results.jsonl", "steps.jsonl"):
        path = folder / name
        text = path.read_text().replace("apples & lay", json.dumps(evil)[1:-1])
        path.write_text(text.replace('"42"', json.dumps(evil)))
    page = page_of(folder)
    assert {"script", "img"} & set(page.tags) == set()
    assert page.text.count("<script>alert(1)</script>") > 3


def test_the_page_forbids_everything_that_it_does_not_need(tmp_path: Path) -> None:
    runs = read_runs([searched_run(tmp_path / "run", MAJORITY)])
    assert "default-src &#x27;none&#x27;" in report_page(runs, [set()])


# ---- trees


def nodes_of(forest: list[SearchNode]) -> list[SearchNode]:
    return [node for root in forest for node in (root, *nodes_of(list(root.children)))]


@pytest.mark.parametrize("method", ["dvts", "beam", "particles", "rebase"])
def test_a_tree_has_every_candidate_once_and_ends_in_the_answer(method: str, tmp_path: Path) -> None:
    folder = searched_run(tmp_path / method, METHODS[method])
    [run] = read_runs([folder])
    searches = read_searches(folder, ["p0", "p1", "p2"])
    for result in run.results:
        search = searches[result.problem_id]
        nodes = nodes_of(search_forest(search, result.chosen))
        assert sorted(node.decision.path for node in nodes) == sorted(search.candidates)
        lineage = [node for node in nodes if node.leads_to_chosen]
        assert "".join(node.text for node in lineage) == search.candidates[result.chosen].text  # type: ignore[index]
        assert [node.is_chosen for node in lineage] == [False] * (len(lineage) - 1) + [True]
        assert all(node.decision.is_kept for node in lineage)


def decision(path: tuple[int, ...], parent: tuple[int, ...] = (), is_kept: bool = True) -> Decision:
    return Decision(path, parent, (0.5,), 1, "step", is_kept)


def candidate(path: tuple[int, ...], text: str) -> Candidate:
    return Candidate("p", path, 0, (1,), text, FinishReason.STEP)


def test_a_part_of_a_text_is_shown_once_even_where_its_end_was_decoded_anew() -> None:
    search = RecordedSearch(
        {(0,): candidate((0,), "caf\ufffd"), (0, 1): candidate((0, 1), "café au lait")},
        {(0,): decision((0,)), (0, 1): decision((0, 1), (0,))},
    )
    [root] = search_forest(search, None)
    assert (root.text, root.children[0].text) == ("caf\ufffd", "é au lait")


def test_decisions_on_candidates_that_left_no_line_have_no_text() -> None:
    search = RecordedSearch({}, {(0,): decision((0,), is_kept=False), (1, 0): decision((1, 0), (7,))})
    assert [(node.text, node.answer) for node in search_forest(search, (1, 0))] == [("", None), ("", None)]


def test_a_circle_of_damaged_parents_ends() -> None:
    search = RecordedSearch({}, {(0,): decision((0,), (1,)), (1,): decision((1,), (0,)), (2,): decision((2,), (2,))})
    assert search_forest(search, (0,)) == []


# ---- outcomes


def result(
    answers: str, reference: str | None = "a", correct: bool | None = None, answer: str | None = "a"
) -> ProblemResult:
    classes = [None if letter == "-" else ord(letter) for letter in answers]
    verdicts = tuple(letter == "a" for letter in answers) if reference else ()
    return ProblemResult(
        "p",
        "majority_vote",
        len(answers),
        answer,
        reference,
        correct,
        None,
        {},
        tuple(classes),
        verdicts,
        {},
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        ("aab", True, set()),
        ("ab-", False, {Outcome.WRONG, Outcome.MISSED, Outcome.OUTVOTED}),
        ("abb", True, {Outcome.OUTVOTED}),
        ("a--", False, {Outcome.WRONG, Outcome.MISSED}),
        ("bcd", False, {Outcome.WRONG}),
    ],
)
def test_outcomes(answers: str, correct: bool, expected: set[Outcome]) -> None:
    assert outcomes(result(answers, correct=correct)) == expected


def test_without_a_reference_nothing_is_wrong() -> None:
    assert outcomes(result("---", reference=None, answer=None)) == {Outcome.UNANSWERED}


@pytest.mark.parametrize(("answers", "expected"), [("aab-", 0.5), ("----", 0.0), ("", 0.0)])
def test_agreement_counts_abstentions(answers: str, expected: float) -> None:
    assert agreement(result(answers)) == expected


# ---- the command


def test_the_page_lies_in_the_folder_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = searched_run(tmp_path / "run", MAJORITY)
    assert execute(["report", str(folder)]) == 0
    assert re.search(rf"{folder}/report.html: 0\.\d MB, problems shown in full: 3 of 3", capsys.readouterr().out)
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_large_runs_show_the_problems_that_need_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [searched_run(tmp_path / name, MAJORITY, n_problems=12) for name in ("a", "b")]
    [run, _] = read_runs(folders)
    failed = [found.problem_id for found in run.results if Outcome.OUTVOTED in outcomes(found)]
    assert 0 < len(failed) < 12
    assert execute(["report", *map(str, folders), "--problems", str(len(failed))]) == 0
    assert f"shown in full: {len(failed)} of 12, {len(failed)} of 12" in capsys.readouterr().out
    page = Page(Path("report.html").read_text())
    assert [name for name in re.findall(r"\((\d+)\)", page.text) if f"p{name}" not in failed] == []
    assert f"{len(failed)} of 12 problems can be opened" in page.text


def test_problems_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = searched_run(tmp_path / "run", DVTS)
    assert execute(["report", str(folder), "--problem", "p2"]) == 0
    assert "shown in full: 1 of 3" in capsys.readouterr().out
    assert execute(["report", str(folder), "--problem", "nowhere"]) == 2
    assert "--problem: no run has finished 'nowhere'" in capsys.readouterr().err


def test_a_changed_problem_file_leaves_texts_out(tmp_path: Path) -> None:
    folder = searched_run(tmp_path / "run", MAJORITY)
    path = tmp_path / "apples.jsonl"
    path.write_text(path.read_text().replace("(0)", "(7)"))
    assert "How many apples? (0)" not in page_of(folder).text
    path.unlink()
    assert "Their texts are missing" in page_of(folder).text


def change(name: str, old: str, new: str) -> Any:
    def changed(folder: Path) -> None:
        path = folder / name
        path.write_text(path.read_text().replace(old, new, 1))

    return changed


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json; give a folder of `tts-orch run`"),
        (lambda folder: (folder / "results.jsonl").unlink(), "no problem is finished yet"),
        (lambda folder: (folder / "config.yaml").unlink(), "config.yaml: No such file"),
        (change("config.yaml", "seed:", "sead:"), "config.yaml: sead: unknown setting"),
        (change("config.yaml", "seed: 0", "seed: ["), "config.yaml:"),
        (change("manifest.json", "{", "["), "manifest.json: damaged"),
        (change("results.jsonl", "{", "["), "results.jsonl:1: not a JSON object"),
        (change("results.jsonl", '"answer"', '"antwort"'), "results.jsonl:1: not a result"),
        (change("candidates.jsonl", '"text"', '"taxt"'), "candidates.jsonl:1: not a candidate"),
        (change("steps.jsonl", '"kept"', '"kapt"'), "steps.jsonl:1: not a search step"),
        (change("steps.jsonl", '"path":[', '"path":null,"was":['), "steps.jsonl:1: not a search step"),
        (lambda folder: (folder / "summary.json").write_text("[]"), "summary.json: not a JSON object"),
    ],
)
def test_a_damaged_folder_is_one_line(
    damage: Any, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = searched_run(tmp_path / "run", DVTS)
    damage(folder)
    assert execute(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert not (folder / "report.html").exists()


def test_a_damaged_tree_without_roots_shows_its_candidates(tmp_path: Path) -> None:
    folder = searched_run(tmp_path / "run", DVTS)
    path = folder / "steps.jsonl"
    path.write_text(re.sub(r'"path":(\[[^]]*\]),"parent":\[[^]]*\]', r'"path":\1,"parent":\1', path.read_text()))
    page = page_of(folder)
    assert "Candidates" in page.text
    assert "Search" not in page.text


def test_results_of_a_smaller_n_do_not_count(tmp_path: Path) -> None:
    folder = searched_run(tmp_path / "run", MAJORITY)
    change("results.jsonl", '"n":8', '"n":4')(folder)
    [run] = read_runs([folder])
    assert [result.problem_id for result in run.results] == ["p1", "p2"]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [searched_run(tmp_path / name / "run", MAJORITY) for name in ("a", "b")]
    assert [run.label for run in read_runs(folders)] == ["a/run", "b/run"]
    twice = read_runs([folders[0], folders[0]])
    assert len(twice) == 2


# ---- drawing


def test_points_lie_where_their_axes_say() -> None:
    x, y = Axis("k", 1, 100, "log"), Axis("share", 0, 1)
    points = [Point(1, 0, 0, 0, "start"), Point(10, 0.5, 0.25, 0.75, "middle"), Point(100, 1, 1, 1, "end")]
    chart = curve_chart("chart", x, y, [Curve("curve", 3, points)])
    places = [
        tuple(map(float, place)) for place in re.findall(r"translate\(([\d.]+) ([\d.]+)\)\" class=\"c3", chart)[:3]
    ]
    (left, bottom), middle, (right, top) = places
    assert left < right
    assert top < bottom
    assert middle == pytest.approx(((left + right) / 2, (top + bottom) / 2), abs=0.1)
    [band] = re.findall(r'points="([^"]+)" class="band"', chart)
    heights = [float(place.split(",")[1]) for place in band.split()]
    assert heights[1] - top == pytest.approx((bottom - top) / 4, abs=0.2)  # over 0.75
    assert bottom - heights[4] == pytest.approx((bottom - top) / 4, abs=0.2)  # under 0.25


def test_parts_of_bars_stand_in_a_row_and_in_proportion() -> None:
    bars = [Bar("a", {"right": 1, "wrong": 3}, ""), Bar("b", {"right": 2}, "")]
    rows = re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', bar_chart("bars", bars, {"right": 2, "wrong": 1}))
    (first, width), (second, next_width), (third, other_width) = [tuple(map(float, row)) for row in rows]
    assert (first, second, third) == (0, width, 0)
    assert (next_width / width, other_width / width) == pytest.approx((3, 2), rel=0.01)


@pytest.mark.parametrize("values", [[], [7.0], [5.0, 5.0], [0.0, 3.0]])
@pytest.mark.parametrize("spacing", ["linear", "log", "binary"])
def test_every_axis_has_its_values_on_it(values: list[float], spacing: Any) -> None:
    axis = axis_over("", values, spacing)
    assert all(0 <= axis.place(value) <= 1 for value in values if value or spacing == "linear")
    assert axis.low < axis.high


def test_attributes_and_content_are_escaped() -> None:
    written = element("p", "<&>", [element("b", 1.23456789), None, 2], class_='"x"', aria_hidden=True, id=None)
    assert written == '<p class="&quot;x&quot;" aria-hidden>&lt;&amp;&gt;<b>1.23457</b>2</p>'


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis("", 0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis("", -3, 12), [0, 5, 10]),
        (Axis("", 1, 16, "binary"), [1, 2, 4, 8, 16]),
        (Axis("", 90, 5500, "log"), [100, 200, 500, 1000, 2000, 5000]),
        (Axis("", 3, 2e6, "log"), [10, 100, 1e3, 1e4, 1e5, 1e6]),
    ],
)
def test_ticks_are_round(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)
    assert all(0 <= axis.place(tick) <= 1 for tick in axis.ticks())
