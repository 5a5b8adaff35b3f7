"""Scores do not depend on what is read together or was read before, and no prefix is read twice."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from tests.toys import TOY_MODELS
from tts_orch.engine.output_layer import OutputLayer
from tts_orch.rewards.likelihood import Likelihood
from tts_orch.rewards.prefix_memory import KeptSegment, PrefixMemory, prefix_keys
from tts_orch.rewards.prefix_scorer import PrefixScorer
from tts_orch.rewards.segments import Segment, n_tokens_of

TOLERANCE = 1e-5  # float32: sums in another order
HEAD = torch.linspace(-1, 1, 32)


def readout(hidden: torch.Tensor) -> torch.Tensor:
    return (hidden.float() @ HEAD).sigmoid()


@pytest.fixture(scope="module")
def backbone() -> LlamaModel:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaModel(LlamaConfig(vocab_size=97, num_hidden_layers=2, initializer_range=0.3, **size)).eval()


def segments(seed: int, lengths: Sequence[int], n_tail: int = 0) -> list[Segment]:
    """The first one is a prompt that is not read; equal seeds begin alike."""
    draw = random.Random(seed)
    tail = tuple(draw.randrange(97) for _ in range(n_tail))
    pieces = [tuple(draw.randrange(97) for _ in range(length)) for length in lengths]
    return [Segment(pieces[0], is_read=False), *(Segment(piece, tail=tail) for piece in pieces[1:])]


def alone(backbone: LlamaModel, solution: Sequence[Segment]) -> list[float]:
    """Read every score with a stock forward of its own: what is before it, and its tail."""
    scores, before = [], ()
    for segment in solution:
        before += segment.token_ids
        if segment.is_read:
            with torch.no_grad():
                hidden = backbone(torch.tensor([[*before, *segment.tail]]), use_cache=False).last_hidden_state
            scores.append(float(readout(hidden[0, -1:])))
    return scores


@pytest.mark.parametrize("n_tail", [0, 3])
@pytest.mark.parametrize("kv_bytes", [0, 20_000, 2**30])
def test_scores_are_those_of_stock_forwards(backbone: LlamaModel, n_tail: int, kv_bytes: int) -> None:
    solutions = [
        segments(1, [9, 4, 1, 7], n_tail),
        segments(1, [9, 4, 1], n_tail),
        segments(2, [3, 2], n_tail),
        segments(1, [9, 4, 1, 7, 5], n_tail),
        segments(2, [3, 2], n_tail),
    ]
    scorer = PrefixScorer(backbone, readout, batch=2, kv_bytes=kv_bytes)
    for _ in range(2):  # the second time some of it is kept
        for solution, readings in zip(solutions, scorer.read(solutions), strict=True):
            assert readings.scores == pytest.approx(alone(backbone, solution), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2"])
def test_other_architectures(name: str) -> None:
    model = TOY_MODELS[name](torch.float32)
    solutions = [segments(1, [2, 2, 2], 1), segments(2, [1, 1])]  # inside the sliding window of gemma
    scorer = PrefixScorer(model.base_model, readout)
    first = [solution[:-1] for solution in solutions]
    scorer.read(first)
    for solution, readings in zip(solutions, scorer.read(solutions), strict=True):
        assert readings.scores == pytest.approx(alone(model.base_model, solution), abs=1e-4)


@pytest.mark.parametrize("n_tail", [0, 2])
def test_a_shared_prefix_is_read_once(backbone: LlamaModel, n_tail: int) -> None:
    prompt, one, two, *others = (Segment((i, i + 1, i + 2), i > 0, (7,) * n_tail if i else ()) for i in range(6))
    scorer = PrefixScorer(backbone, readout)
    step = 3 + n_tail
    assert [one.n_tokens for one in scorer.read([[prompt, one]])] == [3 + step]
    siblings = [[prompt, one, two, other] for other in others]
    assert sorted(reading.n_tokens for reading in scorer.read(siblings)) == [step, step, 2 * step]
    assert [reading.n_tokens for reading in scorer.read(siblings)] == [0, 0, 0]
    whole = sum(map(n_tokens_of, siblings))
    assert whole == 3 * (3 + 3 * step)


def test_equal_solutions_of_a_call_are_read_once(backbone: LlamaModel) -> None:
    solution = segments(3, [5, 5])
    first, second = PrefixScorer(backbone, readout).read([solution, solution])
    assert first.scores == second.scores
    assert sorted([first.n_tokens, second.n_tokens]) == [0, 10]


def test_without_memory_everything_is_read_in_one_go(backbone: LlamaModel) -> None:
    solution = segments(3, [5, 5])
    readings = PrefixScorer(backbone, readout, kv_bytes=0).read([solution] * 4)
    assert [one.n_tokens for one in readings] == [10] * 4


def test_a_score_of_exactly_zero_survives(backbone: LlamaModel) -> None:
    scorer = PrefixScorer(backbone, lambda hidden: torch.zeros(len(hidden)))
    solution = segments(4, [4, 3, 3])
    assert scorer.read([solution])[0].scores == (0.0, 0.0)
    assert scorer.read([[*solution, Segment((5,))]])[0].scores == (0.0, 0.0, 0.0)  # two of them kept


def test_a_tail_is_part_of_what_is_kept(backbone: LlamaModel) -> None:
    scorer = PrefixScorer(backbone, readout)
    prompt = Segment((1, 2, 3), is_read=False)
    with_tail, without = [prompt, Segment((4,), tail=(5, 6))], [prompt, Segment((4, 5, 6))]
    assert scorer.read([with_tail])[0].scores == pytest.approx(scorer.read([without])[0].scores, abs=TOLERANCE)
    assert prefix_keys(with_tail)[-1] != prefix_keys(without)[-1]


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])  # the second caps its logits
@pytest.mark.parametrize("kv_bytes", [0, 2**30])
def test_likelihoods_are_those_of_a_stock_forward(kv_bytes: int, architecture: str) -> None:
    model = TOY_MODELS[architecture](torch.float32)
    model.config.sliding_window = 64  # what is read at once must fit into it
    seen: list[torch.Tensor] = []

    def note(states: torch.Tensor) -> torch.Tensor:
        seen.extend(states)
        return torch.zeros(len(states))

    likelihood = Likelihood(layer=1, output=OutputLayer(model))
    scorer = PrefixScorer(model.base_model, note, kv_bytes=kv_bytes, likelihood=likelihood)
    solution = segments(5, [4, 3, 1, 6])
    scorer.read([solution[:-2]])  # the rest goes on from what is kept, its first token too
    if kv_bytes:
        scorer.read([solution])
        found = [seen[1], *seen[2:]]  # the prompt and the first step; then the others
    else:
        seen.clear()
        scorer.read([solution])
        found = seen[1:]
    token_ids = torch.tensor([[i for segment in solution for i in segment.token_ids]])
    with torch.no_grad():
        whole = model(token_ids, output_hidden_states=True)
    log_probs = whole.logits[0, :-1].log_softmax(-1).gather(1, token_ids[0, 1:, None])[:, 0]
    for states, (start, end) in zip(found, [(4, 7), (7, 8), (8, 14)], strict=True):
        own = log_probs[start - 1 : end - 1]
        so_far = log_probs[3 : end - 1]
        likelihoods = torch.stack([own.mean(), own.min(), so_far.sum(), so_far.min()])
        expected = torch.cat([whole.hidden_states[1][0, end - 1], likelihoods])
        torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)


def kept(n_tokens: int) -> KeptSegment:
    return KeptSegment((torch.zeros(2, 1, n_tokens, 1),), None)  # 8 bytes a token


def test_all_that_is_kept_counts() -> None:
    memory = PrefixMemory(capacity_bytes=100)
    layers = (torch.zeros(2, 1, 1, 1),)
    memory.keep([b"a"], [KeptSegment(layers, None, top=torch.zeros(4), likelihood=torch.zeros(2))])
    assert memory.n_bytes == 8 + 16 + 8


def test_the_least_recently_used_go_first_and_never_what_others_stand_on() -> None:
    memory = PrefixMemory(capacity_bytes=10 * 8)
    memory.keep([b"a", b"ab", b"abc"], [kept(2), kept(2), kept(2)])
    memory.keep([b"x"], [kept(2)])
    memory.find([b"a", b"ab", b"abc"])  # x is the oldest now
    memory.keep([b"a", b"ad"], [kept(4)])
    assert [len(memory.find(keys)) for keys in ([b"x"], [b"a", b"ab", b"abc"], [b"a", b"ad"])] == [0, 3, 2]
    memory.keep([b"y"], [kept(1)])  # abc is the oldest, and nothing stands on it
    assert [len(memory.find(keys)) for keys in ([b"a", b"ab", b"abc"], [b"a", b"ad"], [b"y"])] == [2, 2, 1]
    assert memory.n_bytes == 9 * 8


def test_what_is_larger_than_the_memory_is_not_kept() -> None:
    memory = PrefixMemory(capacity_bytes=7)
    memory.keep([b"a"], [kept(1)])
    assert memory.find([b"a"]) == []
    assert memory.n_bytes == 0
