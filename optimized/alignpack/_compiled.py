"""`gather_slots` for compiled code: plain tensor operations.

A compiler fuses them with what stands around the call, and an exported program needs no kernels and no operator of ours.
"""

import math
import os
from typing import Any

import torch

from alignpack._backends import ENVIRONMENT_VARIABLE, select_backend
from alignpack._inputs.arguments import Fill, as_number, fill_words, zero_words
from alignpack._inputs.words import WORD_DTYPES, as_words
from alignpack._torch_state import assume_constant_result, forward_ad_active, transforms_active

_DIFFERENTIATED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)

_KINDS = {kind.__name__: kind for kind in (TypeError, ValueError, RuntimeError)}


def compile_time_words(
    fill: Fill, dtype: torch.dtype, fill_name: str, backend: str | None, device: torch.device
) -> tuple[int, ...]:
    """The fill's words, which the compiled code holds as constants: another fill is compiled again.

    A backend that was asked for is checked, although compiled code does not use it.

    Raises:
        TypeError, ValueError, RuntimeError: as `as_number`, `fill_words` and `select_backend`.
    """
    # Dynamo may have made a number symbolic. These are operations that it carries out only on constants, so that they
    # turn it into one; and they change nothing.
    if isinstance(fill, float):
        fill = math.copysign(fill, fill)
    elif isinstance(fill, int):
        fill = next(iter({fill: None}))
    refusal = _refusal(fill, dtype, fill_name, backend, device)
    if refusal is not None:
        # Here and not below, where Dynamo would call it an error of its own; and made here, or it would lose the text.
        kind, text = refusal
        raise _KINDS[kind](text)
    return _words(fill, dtype, fill_name, backend, device)


@assume_constant_result
def _words(
    fill: Fill, dtype: torch.dtype, fill_name: str, backend: str | None, device: torch.device
) -> tuple[int, ...]:
    words = fill_words(as_number(fill, dtype, fill_name), dtype, fill_name)
    if backend is not None or os.environ.get(ENVIRONMENT_VARIABLE):
        select_backend(backend, device)
    return words


@assume_constant_result
def _refusal(
    fill: Fill, dtype: torch.dtype, fill_name: str, backend: str | None, device: torch.device
) -> tuple[str, str] | None:
    """The kind and the text of the error, as strings, which are constants to Dynamo; classes and errors are not."""
    try:
        _words(fill, dtype, fill_name, backend, device)
    except (TypeError, ValueError, RuntimeError) as error:
        # Not its own name: PyTorch's errors of devices are subclasses of RuntimeError.
        return next(name for name, kind in _KINDS.items() if isinstance(error, kind)), str(error)
    return None


def gather_compiled(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...]
) -> torch.Tensor:
    """`alignpack._gather.gather_slots` for tracing compilers."""
    # An exported program keeps no Function, but what its forward did.
    exported = torch.compiler.is_exporting() and values.requires_grad
    if values.dtype in _DIFFERENTIATED and (transforms_active() or forward_ad_active() or exported):
        return _gather_by_scatter(values, index, inverse, words)
    moved: torch.Tensor = _CompiledGather.apply(values, index, inverse, words)  # type: ignore[no-untyped-call]
    return moved


class _CompiledGather(torch.autograd.Function):
    """Without `jvp`, which Dynamo refuses."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...]
    ) -> torch.Tensor:
        ctx.save_for_backward(index, inverse)
        return _gather_words(values, index, words)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        _, inverse = ctx.saved_tensors
        return _gather_words(gradient, inverse, zero_words(gradient.dtype)), None, None, None


def gather_composite(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    """The same result by operations on the values themselves, of which PyTorch knows every derivative and batch."""
    return _gather(values, index, _fill_tensor(words, values))


def _fill_tensor(words: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(words, dtype=WORD_DTYPES[like.dtype], device=like.device).view(like.dtype)


def _gather_words(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    # As integers, because Inductor computes bfloat16 and float16 in float32, which changes NaN payloads, and has no
    # operations for float8 and uint16.
    source = as_words(values)
    fill = torch.tensor(words if len(words) > 1 else words[0], dtype=source.dtype, device=source.device)
    moved = _gather(source, index, fill)
    if values.dtype == torch.complex128:
        return torch.view_as_complex(moved.view(torch.float64))
    return moved.view(values.dtype)


def _gather(source: torch.Tensor, index: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    if source.shape[1] == 0:
        return fill.expand(*index.shape, *source.shape[2:]).clone()
    rows = torch.arange(source.shape[0], device=index.device).unsqueeze(1)
    padding = (index < 0).view(*index.shape, *[1] * (source.ndim - 2))
    # Indexing keeps the order of the strides that it finds; the result is to be contiguous.
    return torch.where(padding, fill, source[rows, index.clamp_min(0)]).contiguous()


def _gather_by_scatter(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...]
) -> torch.Tensor:
    """The same result for transforms of `torch.func` and exports, which see through Functions and lose the gradient.

    So PyTorch must differentiate the operations itself, and integers, which keep all bits, have no derivatives.
    """
    fill = _fill_tensor(words, values)
    # A scatter, because its derivative is a gather. Input padding goes to one column more, which is cut.
    batch, columns = index.shape
    trailing = [1] * (values.ndim - 2)
    padding = (torch.cat((index, index.new_full((batch, 1), -1)), 1) < 0).view(batch, columns + 1, *trailing)
    # Made from the values and the map, so that it has every axis that `vmap` gives to either: where `vmap` has to
    # expand the target of a scatter, Inductor (2.13) writes all of the batch to one place.
    target = torch.where(padding, fill, values.new_zeros(batch, columns + 1, *values.shape[2:]))
    places = torch.where(inverse < 0, columns, inverse).view(*inverse.shape, *trailing).expand(values.shape)
    return torch.scatter(target, 1, places, values)[:, :columns].contiguous()
