"""Grading, judged by public pairs of outputs and references with verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tts_orch.tasks.grading import answers_equal, extract_answer, grade

PAIRS = Path(__file__).resolve().parents[3] / "shared" / "data" / "answer_pairs.jsonl"
N_PAIRS, N_AGREED = 221, 215


@pytest.mark.parametrize(
    ("output", "gold", "verdict"),
    [
        (r"... so \boxed{12}", "12", True),
        ("3 * 4 = 12. The answer is 12.", "12", True),
        ("The answer is 13.", "12", False),
        (r"\boxed{\frac{2}{4}}", "0.5", True),
        ("The answer is (B).", "B", True),
        ("The answer is A.", "B", False),
        ("B because of A", "(B)", False),
        ("no idea", "12", False),
        ("", "12", False),
    ],
)
def test_grade(output: str, gold: str, verdict: bool) -> None:
    assert grade(output, gold) is verdict


@pytest.mark.skipif(not PAIRS.is_file(), reason="the public answer pairs are not beside the repository")
def test_agreement_with_public_verdicts() -> None:
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    assert len(pairs) == N_PAIRS
    judge = {"equivalence": answers_equal, "extraction": grade}
    disagreements = [
        pair for pair in pairs if judge[pair["kind"]](pair["prompt"], pair["answer"]) != pair["equivalent"]
    ]
    report = "\n".join(
        f"{p['id']} {p['tags']}: {extract_answer(p['prompt'])!r} or {p['answer']!r}" for p in disagreements
    )
    assert N_PAIRS - len(disagreements) >= N_AGREED, report
