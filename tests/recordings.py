"""Hand-made recordings, and run folders to recover them from without a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tts_orch.config import RunConfig
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, VerifiedStep
from tts_orch.records import Candidate, FinishReason, IntArray, SamplingParams
from tts_orch.replay.recording import Laws, RecordedTrajectory, Recording
from tts_orch.run_folder import RunFolder
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems

K, VOCABULARY = 3, 50
LAW = SamplingParams(temperature=0.7, max_new_tokens=10, stop_ids=(2, 3), logit_bias=((4, 1.5),))
SCALARS = {
    "vocabulary_size": VOCABULARY,
    "max_context": 100,
    "weights_id": "w",
    "numerics": "bitwise",
    "fingerprint": "f",
}


def laws(n: int, seed: int) -> Laws:
    """Return `n` random laws."""
    random = np.random.default_rng(seed)
    ids = np.array([random.permutation(VOCABULARY)[:K] for _ in range(n)], np.int32).reshape(n, K)
    return ids, np.sort(random.dirichlet(np.ones(K + 1), n).astype(np.float32)[:, :K], axis=1)[:, ::-1]


def recording(lengths: dict[str, list[int]], prompt_length: int = 4) -> Recording:
    """Return trajectories of these output lengths by problem, of random tokens."""
    random = np.random.default_rng(0)
    trajectories, prompt_laws = [], {}
    for p, (problem, of_problem) in enumerate(lengths.items()):
        prompt = random.integers(5, VOCABULARY, prompt_length).astype(np.int32)
        prompt_laws[problem] = laws(prompt_length - 1, p)
        for i, n in enumerate(of_problem):
            tokens = random.integers(5, VOCABULARY, n).astype(np.int32)
            trajectories.append(
                RecordedTrajectory(f"{problem}/{i}", problem, i, 100 * p + i, prompt, tokens, *laws(n, 10 * p + i))
            )
    return Recording(LAW, **SCALARS, prompt_laws=prompt_laws, trajectories=trajectories)  # type: ignore[arg-type]


def continuations(recorded: Recording) -> dict[TrajectoryId, list[int]]:
    return {one.name: [*one.prompt.tolist(), *one.tokens.tolist()] for one in recorded.trajectories}


def one_token_step(name: TrajectoryId) -> VerifiedStep:
    """Nothing drafted, one token committed."""
    nothing = np.zeros((1, K), np.int32), np.zeros((1, K), np.float32)
    return VerifiedStep(name, DraftTree.root_only(9), np.zeros(0, np.int32), np.zeros(1, np.int32), *nothing)


class _ToyTokenizer:
    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) % VOCABULARY for character in text]}


TARGET = SimpleNamespace(
    tokenizer=_ToyTokenizer(),
    vocab_size=VOCABULARY,
    max_context=100,
    weights_id="w",
    numerics="bitwise",
    fingerprint="f",
)


def draw_forced_laws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let laws be random; the list gets the number of outputs of every problem whose laws are computed."""
    calls: list[int] = []

    def forced_laws(target: object, prompt: IntArray, outputs: Sequence[IntArray]) -> Iterator[Laws]:
        calls.append(len(outputs))
        yield laws(len(prompt) - 1, 0)
        yield from (laws(len(output), len(output)) for output in outputs)

    module = SimpleNamespace(forced_laws=forced_laws)  # the real one loads torch
    monkeypatch.setitem(sys.modules, "tts_orch.replay.teacher_forcing", module)  # type: ignore[arg-type]
    return calls


def run_config(folder: Path) -> RunConfig:
    """Return the configuration of a run of two problems, which are written."""
    problems = folder / "problems.jsonl"
    problems.write_text('{"id": "a", "prompt": "What?"}\n{"id": "b", "prompt": "Why?"}\n')
    return RunConfig(problems=problems, engine={"target": "toy"}, method={"name": "majority_vote"}, out=folder / "run")


def journal(config: RunConfig, finished: dict[str, int]) -> None:
    """Add candidates of seven tokens, repetitive ones, to a run folder."""
    problems = read_problems(config.problems)
    with RunFolder(config, problems) as folder:
        folder.begin({"weights": "w", "numerics": "bitwise"}, ["f"])
        for problem_id, n in finished.items():
            for i in range(n):
                seed, tokens = trajectory_seed(0, problem_id, (i,)), (5, 6, 7, 5, 6, 7, 8 + i)
                folder.journal.record(Candidate(problem_id, (i,), seed, tokens, "", FinishReason.LENGTH))
            folder.journal.record(Candidate(problem_id, (90,), 1, (5,), "", FinishReason.ERROR))
