"""Replay against real decoding: what a drafter is told, and so what it drafts, is the same verify step by verify step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, toy_target
from tests.toys import VOCABULARY_SIZE, save_toy
from tts_orch.config import DraftingConfig, EngineConfig, RunConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.demo_model import CACHE_NAME
from tts_orch.engine.model_cache import cache_folder
from tts_orch.engine.target import Target, load_target
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import Drafter, VerifiedStep
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.relay import Relay
from tts_orch.records import Candidate, DecodeRequest, FinishReason, IntArray, SamplingParams
from tts_orch.replay.recorder import RecordingDrafter
from tts_orch.replay.recording import Recording
from tts_orch.replay.recovery import FinishedRun, recover
from tts_orch.replay.replayer import replay
from tts_orch.replay.teacher_forcing import forced_laws
from tts_orch.run_folder import RunFolder
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

_N = 5
"""Trajectories a problem: more than advance together."""
_NODES = 9
_TOY_LAW = SamplingParams(temperature=0.6, max_new_tokens=40)
_REAL_N = 3
_REAL_LAW = SamplingParams(temperature=0.7, max_new_tokens=10)
_REAL_PROMPT = "<|im_start|>user\nCount from 1 to 10, twice.<|im_end|>\n<|im_start|>assistant\n"

Requests = list[list[DecodeRequest]]
"""By problem."""
Passes = list[list[VerifiedStep]]


class Witness(Relay):
    """Keeps what a real drafter was told, pass by pass."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.passes: Passes = []

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        self.passes.append(list(steps))
        super().observe(steps)


def _requests(prompts: Sequence[IntArray], law: SamplingParams, n: int = _N) -> Requests:
    return [
        [DecodeRequest(f"p{p}/{i}", ids, len(ids), trajectory_seed(0, f"p{p}", (i,)), law, f"p{p}") for i in range(n)]
        for p, ids in enumerate(prompts)
    ]


def _decode(decoder: Decoder, requests: Requests) -> None:
    """Decode problem after problem."""
    for of_problem in requests:
        decode(decoder, of_problem)
        decoder.close_scope(of_problem[0].scope)


def _record(target: Target, requests: Requests, **settings: object) -> Recording:
    recorder = RecordingDrafter()
    _decode(new_decoder(target, recorder, max_nodes=1, node_budget=False, **settings), requests)
    return recorder.recording(
        requests[0][0].law,
        vocabulary_size=target.vocab_size,
        max_context=target.max_context,
        weights_id=target.weights_id,
        numerics=target.numerics,
        fingerprint=target.fingerprint,
    )


def _drafter(name: str, target: Target) -> Drafter:
    drafter = make_drafter(DraftingConfig(drafter=name, update_from_rejected=False), vocabulary_size=target.vocab_size)  # type: ignore[arg-type]
    assert drafter is not None
    return drafter


def _really(target: Target, name: str, requests: Requests, lockstep: int) -> Passes:
    witness = Witness(_drafter(name, target))
    _decode(new_decoder(target, witness, max_batch=lockstep, max_nodes=_NODES, node_budget=False), requests)
    return witness.passes


def _check_equal(replayed: Passes, real: Passes) -> None:
    assert _lengths(replayed) == _lengths(real)
    for step, real_step in zip(chain(*replayed), chain(*real), strict=True):
        for column in ("token", "parent", "depth", "slot", "source", "kind"):
            assert np.array_equal(getattr(step.tree, column), getattr(real_step.tree, column)), column
        for column in ("accepted", "committed", "law_ids", "law_probs"):
            assert np.array_equal(getattr(step, column), getattr(real_step, column)), column


def _lengths(passes: Passes) -> list[list[tuple[str, int, int]]]:
    return [[(step.trajectory, len(step.accepted), len(step.committed)) for step in steps] for steps in passes]


@pytest.fixture(scope="module")
def toy_requests() -> Requests:
    return _requests([prompt(12), prompt(70, seed=1)], _TOY_LAW)


@pytest.fixture(scope="module")
def toy_recording(toy_requests: Requests) -> Recording:
    return _record(toy_target(), toy_requests, max_batch=3)


@pytest.mark.parametrize("lockstep", [1, 4])
@pytest.mark.parametrize("name", ["stand", "prompt_lookup"])
def test_toy_replays_as_it_decodes(name: str, lockstep: int, toy_recording: Recording, toy_requests: Requests) -> None:
    real = _really(toy_target(), name, toy_requests, lockstep)
    replayed = list(replay(toy_recording, _drafter(name, toy_target()), FixedSize(_NODES), lockstep=lockstep))
    assert any(len(step.accepted) for steps in real for step in steps)
    _check_equal(replayed, real)


def test_some_trajectories_end_before_the_limit(toy_recording: Recording) -> None:
    """Else nothing was learned about cuts."""
    lengths = {len(one.tokens) for one in toy_recording.trajectories}
    assert min(lengths) < _TOY_LAW.max_new_tokens
    assert max(lengths) == _TOY_LAW.max_new_tokens


def test_a_drafting_decoder_records_the_same(toy_recording: Recording, toy_requests: Requests) -> None:
    recorder = RecordingDrafter(_drafter("stand", toy_target()))
    _decode(new_decoder(toy_target(), recorder, max_batch=2, max_nodes=_NODES, node_budget=False), toy_requests)
    names = ("vocabulary_size", "max_context", "weights_id", "numerics", "fingerprint")
    recording = recorder.recording(_TOY_LAW, **{name: getattr(toy_recording, name) for name in names})
    assert len(recording.trajectories) == 2 * _N
    for one, other in zip(recording.trajectories, toy_recording.trajectories, strict=True):
        assert one.name == other.name
        assert np.array_equal(one.tokens, other.tokens)
        assert np.array_equal(one.law_ids, other.law_ids)
        assert np.allclose(one.law_probs, other.law_probs)


@pytest.fixture(scope="module")
def smollm2() -> Target:
    is_required = os.environ.get("CI") or os.environ.get("TTS_ORCH_REQUIRE_MODEL")
    if not (cache_folder() / CACHE_NAME).is_dir() and not is_required:
        pytest.skip("the demo model is not there; `make model` fetches it, `make test` does so too")
    return load_target(EngineConfig(target="smollm2", threads=1))


@pytest.fixture(scope="module")
def real_requests(smollm2: Target) -> Requests:
    assert smollm2.tokenizer is not None
    return _requests([np.array(smollm2.tokenizer(_REAL_PROMPT)["input_ids"], np.int32)], _REAL_LAW, _REAL_N)


@pytest.fixture(scope="module")
def real_recording(smollm2: Target, real_requests: Requests) -> Recording:
    return _record(smollm2, real_requests, max_batch=_REAL_N)


@pytest.mark.parametrize("lockstep", [1, 2])
def test_demo_model_replays_as_it_decodes(
    lockstep: int, smollm2: Target, real_recording: Recording, real_requests: Requests
) -> None:
    """Bit by bit: the laws of a batch of three are those of one trajectory with drafts."""
    real = _really(smollm2, "stand", real_requests, lockstep)
    replayed = list(replay(real_recording, _drafter("stand", smollm2), FixedSize(_NODES), lockstep=lockstep))
    assert len({len(step.accepted) for steps in real for step in steps}) > 1
    _check_equal(replayed, real)


def _journaled_run(folder: Path, target: Target) -> Recording:
    """Write the folder of a run and return what was recorded while its candidates were decoded."""
    problem_file = folder / "problems.jsonl"
    problem_file.write_text('{"id": "a", "prompt": "abcabcabc"}\n{"id": "b", "prompt": "the thing: 1 + 1"}\n')
    config = RunConfig(
        problems=problem_file,
        engine={"target": str(folder / "model")},
        method={"name": "majority_vote", "n": _N},
        law={"temperature": 0.6, "max_new_tokens": 40},
        out=folder / "run",
    )
    problems = read_problems(problem_file)
    assert target.tokenizer is not None
    prompts = [render(problem, target.tokenizer) for problem in problems]
    requests = _requests(prompts, config.law.sampling_params())
    recording = _record(target, requests, max_batch=2)
    with RunFolder(config, problems) as run:
        run.begin({"weights": target.weights_id, "numerics": target.numerics}, [target.fingerprint])
        for one in recording.trajectories:
            problem = problems[int(one.problem_id[1:])]
            reason = FinishReason.LENGTH if len(one.tokens) == 40 else FinishReason.EOS
            tokens = tuple(one.tokens.tolist())
            run.journal.record(Candidate(problem.id, (one.index,), one.seed, tokens, "", reason))
    return recording


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recording, Target]:
    folder = tmp_path_factory.mktemp("replay")
    target = load_target(EngineConfig(target=str(save_toy(folder / "model")), threads=1))
    assert target.numerics == "bitwise"
    return folder / "run", _journaled_run(folder, target), target


def test_laws_of_a_run_folder_are_those_of_its_decoding(toy_run: tuple[Path, Recording, Target]) -> None:
    folder, expected, target = toy_run
    told: list[tuple[int, int]] = []
    recovered = recover(FinishedRun.read(folder), lambda config: target, lambda *done: told.append(done))
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert recovered.vocabulary_size == VOCABULARY_SIZE
    for one, other in zip(recovered.trajectories, expected.trajectories, strict=True):
        for column in ("index", "seed", "prompt", "tokens", "law_ids", "law_probs"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), column
    for (ids, probs), (other_ids, other_probs) in zip(
        recovered.prompt_laws.values(), expected.prompt_laws.values(), strict=True
    ):
        known = other_probs.any(axis=1)  # what prompts begin with alike is computed once
        assert known.any()
        assert np.array_equal(ids[known], other_ids[known])
        assert np.array_equal(probs[known], other_probs[known])


def test_a_recovered_recording_needs_no_target_again(toy_run: tuple[Path, Recording, Target]) -> None:
    folder, _, target = toy_run

    def refuse(config: EngineConfig) -> Target:
        raise AssertionError("loaded")

    first = recover(FinishedRun.read(folder), lambda config: target)
    again = recover(FinishedRun.read(folder, limit=1), refuse)
    assert [one.name for one in again.trajectories] == [one.name for one in first.trajectories[:_N]]


def test_a_prompt_of_one_token_has_no_laws_but_their_shape(
    toy_run: tuple[Path, Recording, Target],
) -> None:
    _, recorded, target = toy_run
    k, output = recorded.trajectories[0].law_ids.shape[1], np.array([5, 6], np.int32)
    (ids, probs), (output_ids, _) = forced_laws(target, np.array([5], np.int32), [output])
    assert ids.shape == probs.shape == (0, k)
    assert output_ids.shape == (2, k)
    assert (ids.dtype, probs.dtype) == (np.int32, np.float32)
