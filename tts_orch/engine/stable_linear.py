"""Linear layers whose result for a row does not depend on how many rows share the product.

`nn.functional.linear` rounds a row in several ways, depending on the number of rows; a prepacked oneDNN product does
not, and is the better kernel for a few rows. Which kernel a shape gets is decided by comparing bits, never by timing:
two workers on equal machines must choose alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from tts_orch.engine.threads import n_threads

__all__ = ["StableLinear", "choose_kernel"]

_PROBED_ROWS = (2, 3, 4, 7, 8, 16, 17, 33, 64, 65)
_SEED = 20240229


class StableLinear(nn.Module):
    """`x W^T + b` by one kernel; a single row is computed as two, because products with vectors round otherwise."""

    kernel: ClassVar[str]

    def __init__(self, in_features: int, out_features: int, bias: Tensor | None) -> None:
        """Keep the bias; subclasses keep the weight in the form their kernel wants."""
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in_features] -> [..., out_features]`."""
        rows = x.reshape(-1, self.in_features)
        if rows.shape[0] == 1:
            return self.multiply(torch.cat((rows, rows)))[:1].view(*x.shape[:-1], self.out_features)
        return self.multiply(rows).view(*x.shape[:-1], self.out_features)

    def multiply(self, rows: Tensor) -> Tensor:
        """`[R, in_features] -> [R, out_features]`, `R` at least 2."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Shape and kernel, as `nn.Linear` prints its own."""
        return f"in_features={self.in_features}, out_features={self.out_features}, kernel={self.kernel}"


class _Prepacked(StableLinear):
    kernel = "oneDNN, prepacked"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias)
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def multiply(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.packed, self.bias, "none", [], "")
        return product


class _Transposed(StableLinear):
    kernel = "matrix product, transposed weight"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias)
        self.transposed = nn.Parameter(weight.detach().t().contiguous(), requires_grad=False)

    def multiply(self, rows: Tensor) -> Tensor:
        product = rows @ self.transposed
        return product if self.bias is None else product + self.bias


class _Plain(StableLinear):
    kernel = "nn.functional.linear"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias)
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)

    def multiply(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.weight, self.bias)


def choose_kernel(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor, Tensor | None], StableLinear] | None:
    """The best kernel that gives every row of this shape the same bits in any batch; `None` if there is none."""
    for candidate in (_Prepacked, _Transposed, _Plain):
        try:
            if _is_stable(candidate(weight, bias)):
                return candidate
        except RuntimeError:  # oneDNN is not built in, or has no kernel for the type
            continue
    return None


def _is_stable(linear: StableLinear) -> bool:
    generator = torch.Generator().manual_seed(_SEED)
    rows = torch.randn(max(_PROBED_ROWS), linear.in_features, generator=generator)
    expected = linear(rows)
    return all(
        torch.equal(linear(rows[start : start + n]), expected[start : start + n])
        for _ in _each_thread_count()
        for n in _PROBED_ROWS
        for start in {0, len(rows) - n}
    )


def _each_thread_count() -> Iterator[int]:
    """Run the caller's body with one thread, then with all."""
    n = n_threads()
    try:
        for threads in sorted({1, n}):
            torch.set_num_threads(threads)
            yield threads
    finally:
        torch.set_num_threads(n)
