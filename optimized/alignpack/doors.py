"""The doors to the primitive: one `gather_rows` for every way in which PyTorch can call it.

Eager calls take the raw operator through a cheap `autograd.Function`, and skip both where nobody could notice. Transforms
of `torch.func` take it through a Function with batching rules. Compiled code gets the same thing in plain tensor
operations, which the compiler fuses. Every backward calls `gather_rows` again, with the maps swapped: whichever door
the derivative is asked through, it is open, and it can be differentiated again.
"""

from typing import Any

import torch

from alignpack import primitive
from alignpack.compiled import gather_plainly, gather_rows_traced
from alignpack.fill import zero_words
from alignpack.implementations import Backend
from alignpack.watchers import is_batched_gradient, is_unwatched, transforms_active

Words = tuple[int, ...]


def gather_rows(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1; differentiable in `values`.

    Args:
        values: `[batch, slots, ...]`.
        index: `[batch, columns]` int64, the slot that each column takes, or -1.
        inverse: `[batch, slots]` int64, the column that took each slot, or -1.
        words: the fill's bits, see `alignpack.fill.fill_words`.
        backend: the implementation, for the gradients too; compiled code has one of its own.

    Returns:
        `[batch, columns, ...]`, new and contiguous (under `vmap`: of any strides).
    """
    if torch.compiler.is_compiling():
        return gather_rows_traced(values, index, inverse, words)
    if is_unwatched(values, index):
        return backend.gather_rows(values, index, words)
    if is_batched_gradient(values):
        # The old `vmap` behind `is_grads_batched` sees through Functions, and would lose what they differentiate.
        return gather_plainly(values, index, words)
    if index.is_inference() or inverse.is_inference():
        # Such maps come from layouts that were rebuilt under inference mode; autograd cannot save them.
        index, inverse = index.clone(), inverse.clone()
    door = _TransformedGather if transforms_active() else _EagerGather
    moved: torch.Tensor = door.apply(values, index, inverse, words, backend)  # type: ignore[no-untyped-call]
    return moved


class _Adjoint(torch.autograd.Function):
    """The derivatives, the same for both Functions."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        index, inverse = ctx.saved_tensors
        return _zero_filled(gradients[0], inverse, index, ctx.backend), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        index, inverse = ctx.saved_tensors
        return _zero_filled(tangent, index, inverse, ctx.backend)


class _EagerGather(_Adjoint):
    """The cheap form: `forward` takes the context, which `torch.func` does not accept."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
    ) -> torch.Tensor:
        _remember(ctx, index, inverse, backend)
        if is_unwatched(values, index):  # by anybody but autograd, which does not look in here
            return backend.gather_rows(values, index, words)
        return primitive.gather_rows(values, index, inverse, words, backend.name)


class _TransformedGather(_Adjoint):
    """The form for `torch.func`: a context of its own, and a rule for `vmap`."""

    @staticmethod
    def forward(
        values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
    ) -> torch.Tensor:
        return primitive.gather_rows(values, index, inverse, words, backend.name)

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, Words, Backend],
        _output: torch.Tensor,
    ) -> None:
        _, index, inverse, _, backend = inputs
        _remember(ctx, index, inverse, backend)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, int | None, int | None, Any, Any],
        values: torch.Tensor,
        index: torch.Tensor,
        inverse: torch.Tensor,
        words: Words,
        backend: Backend,
    ) -> tuple[torch.Tensor, int]:
        values_dim, index_dim, inverse_dim, *_ = in_dims
        if index_dim is None and inverse_dim is None and values_dim is not None:
            # The maps are the same for all: the new axis goes behind the slots, and is one more trailing axis.
            return gather_rows(values.movedim(values_dim, 2), index, inverse, words, backend), 2

        def first(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        values, index, inverse = first(values, values_dim), first(index, index_dim), first(inverse, inverse_dim)
        moved = gather_rows(values.flatten(0, 1), index.flatten(0, 1), inverse.flatten(0, 1), words, backend)
        return moved.unflatten(0, index.shape[:2]), 0


def _remember(ctx: Any, index: torch.Tensor, inverse: torch.Tensor, backend: Backend) -> None:
    ctx.save_for_backward(index, inverse)
    ctx.save_for_forward(index, inverse)
    ctx.backend = backend


def _zero_filled(values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, backend: Backend) -> torch.Tensor:
    return gather_rows(values, index, inverse, zero_words(values.dtype), backend)
