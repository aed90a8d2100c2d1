"""The one primitive, `gather_rows`, and its gradients.

`pack` and `restore` are the same operation with the two index maps swapped, and so is the backward of each: the
adjoint of a gather through a map is a gather through the inverse map, because every real token has exactly one place on
either side. So no gradient is ever accumulated, and what stands at padding reaches nothing.
"""

from typing import Any

import torch

from alignpack.backends import Backend, select_backend
from alignpack.fill import Fill, as_number, fill_words, zero_words
from alignpack.values import check_fit, check_values


def move_rows(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, fill: Fill = 0, backend: str | None = None
) -> torch.Tensor:
    """Check values and fill, choose the backend, and gather: the path of every `pack` and `restore`."""
    return gather_rows(values, index, inverse, *check_move(values, inverse, fill, backend))


def check_move(
    values: torch.Tensor,
    inverse: torch.Tensor,
    fill: Fill,
    backend: str | None,
    values_name: str = "values",
    fill_name: str = "fill",
) -> tuple[tuple[int, ...], Backend]:
    """The fill's words and the backend, or the error that names what is wrong; nothing is allocated."""
    check_values(values, values_name)
    number = as_number(fill, values.dtype, fill_name)
    check_fit(values, inverse, values_name)
    return fill_words(number, values.dtype, fill_name), select_backend(backend, values.device)


def gather_rows(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...], backend: Backend
) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1; differentiable in `values`.

    Args:
        values: `[batch, slots, ...]`.
        index: `[batch, columns]` int64, the slot that each column takes, or -1.
        inverse: `[batch, slots]` int64, the column that took each slot, or -1.
        words: the fill's bits, see `alignpack.fill.fill_words`.
        backend: the implementation, for the gradients too.

    Returns:
        `[batch, columns, ...]`, new and contiguous.
    """
    if not (values.is_floating_point() or values.is_complex()):
        return backend.gather_rows(values, index, words)  # no gradient can be asked of it
    if torch.compiler.is_compiling():
        # A clean graph break: what Dynamo would make of the eager form is slower, and refused for some dtypes.
        moved: torch.Tensor = torch.compiler.disable(_gather_rows)(values, index, inverse, words, backend)
        return moved
    return _gather_rows(values, index, inverse, words, backend)


def _gather_rows(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...], backend: Backend
) -> torch.Tensor:
    if index.is_inference() or inverse.is_inference():
        # Such maps come from layouts that were rebuilt under inference mode; autograd cannot save them.
        index, inverse = index.clone(), inverse.clone()
    moved: torch.Tensor = _GatherRows.apply(values, index, inverse, words, backend)  # type: ignore[no-untyped-call]
    return moved


class _GatherRows(torch.autograd.Function):
    """`gather_rows` for autograd: reverse mode, forward mode, and derivatives of either."""

    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        index: torch.Tensor,
        inverse: torch.Tensor,
        words: tuple[int, ...],
        backend: Backend,
    ) -> torch.Tensor:
        ctx.save_for_backward(index, inverse)
        ctx.save_for_forward(index, inverse)
        ctx.backend = backend
        return backend.gather_rows(values, index, words)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        (gradient,) = gradients
        index, inverse = ctx.saved_tensors
        # Through the public door again, not this class: that is what makes second derivatives.
        moved = gather_rows(gradient, inverse, index, zero_words(gradient.dtype), ctx.backend)
        return moved, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        index, inverse = ctx.saved_tensors
        return gather_rows(tangent, index, inverse, zero_words(tangent.dtype), ctx.backend)
