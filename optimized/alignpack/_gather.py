"""The path of every `pack` and `restore`: check once, choose the backend once, enter autograd or not, gather.

Both are one primitive with the two index maps swapped, and so are their backwards: `docs/design.md` says why.
"""

from typing import Any

import torch

from alignpack._backends import named_backend, select_backend, torch_backend
from alignpack._backends.interface import Backend
from alignpack._compiled import compile_time_words, gather_compiled, gather_composite
from alignpack._inputs.arguments import Fill, as_number, check_fit, check_values, fill_words, zero_words
from alignpack._torch_state import can_bypass_dispatcher, is_legacy_batched, transforms_active

Words = tuple[int, ...]


def check_and_gather(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, fill: Fill = 0, backend: str | None = None
) -> torch.Tensor:
    """`gather_slots` of a caller's arguments, which are checked first."""
    return gather_slots(values, index, inverse, *check_and_choose(values, inverse, fill, backend))


def check_and_choose(
    values: torch.Tensor,
    inverse: torch.Tensor,
    fill: Fill,
    backend: str | None,
    values_name: str = "values",
    fill_name: str = "fill",
) -> tuple[Words, Backend]:
    """The fill's words and the backend, or the error that names what is wrong; nothing is allocated."""
    check_values(values, values_name)
    if torch.compiler.is_compiling():
        check_fit(values, inverse, values_name)
        words = compile_time_words(fill, values.dtype, fill_name, backend, values.device)
        return words, torch_backend.BACKEND
    number = as_number(fill, values.dtype, fill_name)
    check_fit(values, inverse, values_name)
    return fill_words(number, values.dtype, fill_name), select_backend(backend, values.device)


def gather_slots(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
) -> torch.Tensor:
    """`out[b, i] = values[b, index[b, i]]`, and the fill where `index` is -1; differentiable in `values`.

    Every backward calls this function again, which gives derivatives of any order.

    Args:
        values: `[batch, slots, ...]`.
        index: `[batch, columns]` int64, the slot that each column takes, or -1.
        inverse: `[batch, slots]` int64, the column that took each slot, or -1.
        words: the fill's bits, see `fill_words`.
        backend: the implementation, for the gradients too; compiled code has its own.

    Returns:
        `[batch, columns, ...]`, new and contiguous (under `vmap`, of any strides).
    """
    if torch.compiler.is_compiling():
        return gather_compiled(values, index, inverse, words)
    if can_bypass_dispatcher(values, index):
        return backend.gather_slots(values, index, words)
    if is_legacy_batched(values):
        # The old `vmap` behind `is_grads_batched` looks through Functions and would lose their derivatives.
        return gather_composite(values, index, words)
    if index.is_inference() or inverse.is_inference():
        # Layouts rebuilt under inference mode have such maps, which autograd cannot save.
        index, inverse = index.clone(), inverse.clone()
    function = _FunctorchGather if transforms_active() else _EagerGather
    moved: torch.Tensor = function.apply(values, index, inverse, words, backend)  # type: ignore[no-untyped-call]
    return moved


# --- autograd --------------------------------------------------------------------------------------------------------


class _Adjoint(torch.autograd.Function):
    """The derivatives, the same for both Functions."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        index, inverse = ctx.saved_tensors
        return _gather_with_zeros(gradients[0], inverse, index, ctx.backend), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: None) -> torch.Tensor:
        index, inverse = ctx.saved_tensors
        return _gather_with_zeros(tangent, index, inverse, ctx.backend)


class _EagerGather(_Adjoint):
    """The cheap form: `forward` takes the context, which `torch.func` does not accept."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
    ) -> torch.Tensor:
        _save(ctx, index, inverse, backend)
        if can_bypass_dispatcher(values, index):  # autograd has recorded the call already
            return backend.gather_slots(values, index, words)
        return call_operator(values, index, inverse, words, backend.name)


class _FunctorchGather(_Adjoint):
    """The form for `torch.func`: `setup_context`, and a rule for `vmap`."""

    @staticmethod
    def forward(
        values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: Backend
    ) -> torch.Tensor:
        return call_operator(values, index, inverse, words, backend.name)

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, Words, Backend],
        _output: torch.Tensor,
    ) -> None:
        _, index, inverse, _, backend = inputs
        _save(ctx, index, inverse, backend)

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
            # All share the maps: the new axis moves behind the slots and is one more trailing axis.
            return gather_slots(values.movedim(values_dim, 2), index, inverse, words, backend), 2

        def first(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        # A batch of layouts: its axis and the rows' axis become one, and are split again afterwards.
        values, index, inverse = first(values, values_dim), first(index, index_dim), first(inverse, inverse_dim)
        moved = gather_slots(values.flatten(0, 1), index.flatten(0, 1), inverse.flatten(0, 1), words, backend)
        return moved.unflatten(0, index.shape[:2]), 0


def _save(ctx: Any, index: torch.Tensor, inverse: torch.Tensor, backend: Backend) -> None:
    ctx.save_for_backward(index, inverse)
    ctx.save_for_forward(index, inverse)
    ctx.backend = backend


def _gather_with_zeros(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, backend: Backend
) -> torch.Tensor:
    return gather_slots(values, index, inverse, zero_words(values.dtype), backend)


# --- the operator ----------------------------------------------------------------------------------------------------

# PyTorch's transforms see operators: fake and meta tensors take the shape from it, tracers record it, and selective
# checkpointing treats it as one operation. A recorded graph can be differentiated any number of times.
_LIBRARY = torch.library.Library("alignpack", "DEF")
_LIBRARY.define(
    "gather_slots(Tensor values, Tensor index, Tensor inverse, int[] words, str backend) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _gather_real(
    values: torch.Tensor, index: torch.Tensor, _inverse: torch.Tensor, words: list[int], backend: str
) -> torch.Tensor:
    return named_backend(backend, values.device).gather_slots(values, index, tuple(words))


def _gather_fake(
    values: torch.Tensor, index: torch.Tensor, _inverse: torch.Tensor, _words: list[int], _backend: str
) -> torch.Tensor:
    return values.new_empty(*index.shape, *values.shape[2:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001 - given by name
    _, index, inverse, _, backend = inputs
    ctx.save_for_backward(index, inverse)
    ctx.backend = backend


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    index, inverse = ctx.saved_tensors
    return call_operator(gradient, inverse, index, zero_words(gradient.dtype), ctx.backend), None, None, None, None


_LIBRARY.impl("gather_slots", _gather_real, "CompositeExplicitAutograd")
torch.library.register_fake("alignpack::gather_slots", _gather_fake, lib=_LIBRARY)
torch.library.register_autograd("alignpack::gather_slots", _backward, setup_context=_setup_context, lib=_LIBRARY)

OPERATOR = torch.ops.alignpack.gather_slots.default


def call_operator(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: Words, backend: str
) -> torch.Tensor:
    """The operator `alignpack::gather_slots`, which takes the backend by name."""
    moved: torch.Tensor = OPERATOR(values, index, inverse, words, backend)
    return moved
