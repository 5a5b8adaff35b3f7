"""Bit-stable arithmetic: accurate, and the same bits for an element or a row wherever it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tts_orch.engine import fixed_math
from tts_orch.engine.stable import stabilise
from tts_orch.engine.stable_activation import StableActivation, kind_of
from tts_orch.engine.stable_linear import StableLinear
from tts_orch.engine.stable_norm import norm_twin
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.records import FloatArray

ACTIVATIONS = ["silu", "swish", "quick_gelu", "gelu", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh",
               "gelu_python", "sigmoid"]  # fmt: skip


@njit
def _exp(x: FloatArray, result: FloatArray) -> None:
    for i in range(x.size):
        result[i] = fixed_math.exp(x[i])


@njit
def _tanh(x: FloatArray, result: FloatArray) -> None:
    for i in range(x.size):
        result[i] = fixed_math.tanh(x[i])


@njit
def _fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    return fixed_math.fma(a, b, c)


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = n_threads()
    yield
    set_threads(before)


def test_exp_is_within_a_unit_in_the_last_place() -> None:
    x = np.linspace(-87.3, 88.3, 300_001).astype(np.float32)
    result = np.empty_like(x)
    _exp(x, result)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(result - exact) / np.spacing(exact.astype(np.float32))) < 1.0


def test_exp_at_its_ends() -> None:
    x = np.array([-np.inf, -1e30, -87.34, -0.0, 0.0, 88.73, np.inf], np.float32)
    result = np.empty_like(x)
    _exp(x, result)
    assert result.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, math.inf, math.inf]


def test_tanh_is_within_four_units_in_the_last_place() -> None:
    x = np.linspace(-12.0, 12.0, 300_001).astype(np.float32)
    result = np.empty_like(x)
    _tanh(x, result)
    exact = np.tanh(x.astype(np.float64))
    assert np.max(np.abs(result - exact) / np.spacing(np.abs(exact).astype(np.float32))) < 4.0


def test_fma_rounds_once() -> None:
    a = np.float32(1 + 2**-12)
    assert _fma(a, a, np.float32(-1.0)) == np.float32((1 + 2**-12) ** 2 - 1)
    assert np.float32(a * a) - np.float32(1.0) != np.float32((1 + 2**-12) ** 2 - 1)


def test_vector_body_and_scalar_tail_agree() -> None:
    x = np.random.default_rng(0).normal(scale=20.0, size=1003).astype(np.float32)
    whole, single = np.empty_like(x), np.empty_like(x)
    _exp(x, whole)
    for i in range(x.size):
        _exp(x[i : i + 1], single[i : i + 1])
    assert np.array_equal(whole.view(np.int32), single.view(np.int32))


def _stable(name: str) -> StableActivation:
    kind = kind_of(ACT2FN[name])
    assert kind is not None
    return StableActivation(kind)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_equals_the_original(name: str) -> None:
    x = torch.linspace(-30.0, 30.0, 20_001)
    assert (_stable(name)(x) - ACT2FN[name](x.double())).abs().max() < 3e-6


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_of_an_element_is_the_same_everywhere(name: str) -> None:
    x = torch.randn(33, 1003, generator=torch.Generator().manual_seed(0))
    activation = _stable(name)
    set_threads(1)
    expected = activation(x)
    set_threads(2)
    assert torch.equal(activation(x), expected)
    for rows, width in [(1, 1003), (7, 37), (33, 1), (2, 100)]:
        assert torch.equal(activation(x[:rows, :width]), expected[:rows, :width])


@pytest.mark.parametrize(("n_out", "n_in"), [(64, 48), (33, 7), (1, 1100), (100, 2500)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_is_accurate_and_a_row_is_the_same_in_every_product(n_out: int, n_in: int, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(n_out)
    weight, x = torch.randn(n_out, n_in, generator=generator), torch.randn(130, n_in, generator=generator)
    bias = torch.randn(n_out, generator=generator) if has_bias else None
    linear = StableLinear(weight, bias)
    set_threads(1)
    expected = linear(x)
    exact = nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert (expected - exact).abs().max() < 2e-6 * n_in**0.5 * 5
    for threads in (1, 2):
        set_threads(threads)
        for n in (1, 2, 3, 11, 12, 13, 25, 130):
            assert torch.equal(linear(x[:n]), expected[:n])
            assert torch.equal(linear(x[-n:]), expected[-n:])


class _Model(nn.Module):
    """Embedding, linears with and without bias, an activation, and a head tied to the embedding."""

    def __init__(self, activation: str = "silu") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(300, 48)
        self.up = nn.Linear(48, 100)
        self.activation = ACT2FN[activation]
        self.down = nn.Linear(100, 48, bias=False)
        self.head = nn.Linear(48, 300, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.head(self.down(self.activation(self.up(self.embedding(token_ids)))))  # type: ignore[no-any-return]


@torch.inference_mode()
def test_stabilised_model_computes_a_row_alike_in_every_batch() -> None:
    model = _Model().eval()
    token_ids = torch.arange(150).reshape(1, 150)
    original = model(token_ids)
    assert stabilise(model) == ""
    assert all(isinstance(layer, StableLinear) for layer in (model.up, model.down, model.head))
    assert isinstance(model.activation, StableActivation)
    whole = model(token_ids)
    assert (whole - original).abs().max() < 1e-5
    for n in (1, 2, 3, 5, 17, 64):
        for threads in (1, 2):
            set_threads(threads)
            assert torch.equal(model(token_ids[:, 20 : 20 + n]), whole[:, 20 : 20 + n])


class _NormOfOnePlus(nn.Module):
    """Gemma's variant: the weight is what is added to one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) / 10)
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class _OnePlusRMSNorm(_NormOfOnePlus):
    pass


class _CubedRMSNorm(_NormOfOnePlus):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) ** 3


@pytest.mark.parametrize("width", [5, 16, 576, 1000])
def test_norm_equals_the_original_and_a_row_is_the_same_everywhere(width: int) -> None:
    torch.manual_seed(width)
    original = LlamaRMSNorm(width)
    original.weight.data.normal_()
    rows = torch.randn(150, width)
    for module in (original, _OnePlusRMSNorm(width)):
        twin = norm_twin(module)
        assert twin is not None
        torch.testing.assert_close(twin(rows), module(rows), rtol=1e-5, atol=1e-6)
        for threads in (1, 2):
            set_threads(threads)
            together = twin(rows)
            assert all(torch.equal(twin(rows[i : i + 1]), together[i : i + 1]) for i in (0, 15, 16, 149))


def test_norms_that_compute_something_else_are_left_alone() -> None:
    assert norm_twin(_CubedRMSNorm(8)) is None
    assert norm_twin(nn.LayerNorm(8)) is None


def test_embedding_keeps_the_weight_it_shared() -> None:
    model = _Model()
    before = model.embedding.weight.clone()
    stabilise(model)
    assert torch.equal(model.embedding.weight, before)
    assert [name for name, _ in model.named_parameters()] == ["embedding.weight"]


def test_what_has_no_stable_twin_is_named() -> None:
    assert stabilise(_Model("mish")) == "MishActivation"
    assert stabilise(_Model().double()) == "Linear of torch.float64"
