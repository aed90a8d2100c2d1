"""`gather_slots` for compiled code: plain tensor operations.

A compiler fuses them with their neighbours, and an exported program needs neither our kernels nor our operator.
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
    """The fill's words, constants of the compiled code: another fill is compiled again.

    A backend that was asked for is checked, although compiled code does not use it.
    """
    # Dynamo may have made a number symbolic. It runs these operations on constants only, so they make the number a
    # constant and leave its value alone.
    if isinstance(fill, float):
        fill = math.copysign(fill, fill)
    elif isinstance(fill, int):
        fill = next(iter({fill: None}))
    refusal = _refusal(fill, dtype, fill_name, backend, device)
    if refusal is not None:
        # Raised here, because Dynamo would report an error from below as its own; made here, or its text would be lost.
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
    """The error's kind and text as strings, which Dynamo takes as constants; it does not take classes and errors."""
    try:
        _words(fill, dtype, fill_name, backend, device)
    except (TypeError, ValueError, RuntimeError) as error:
        # The base class, because PyTorch's device errors are subclasses of RuntimeError.
        return next(name for name, kind in _KINDS.items() if isinstance(error, kind)), str(error)
    return None


def gather_compiled(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...]
) -> torch.Tensor:
    """`alignpack._gather.gather_slots` for tracing compilers."""
    # Export drops the Function and keeps the operations of its forward.
    exported = torch.compiler.is_exporting() and values.requires_grad
    if values.dtype in _DIFFERENTIATED and (transforms_active() or forward_ad_active() or exported):
        return _gather_by_scatter(values, index, inverse, words)
    moved: torch.Tensor = _CompiledGather.apply(values, index, inverse, words)  # type: ignore[no-untyped-call]
    return moved


class _CompiledGather(torch.autograd.Function):
    """The Function for Dynamo, which refuses `jvp`."""

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
    """The same result by plain operations, which PyTorch can differentiate and batch."""
    return _gather(values, index, _fill_tensor(words, values))


def _fill_tensor(words: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(words, dtype=WORD_DTYPES[like.dtype], device=like.device).view(like.dtype)


def _gather_words(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...]) -> torch.Tensor:
    # As integers, because Inductor computes bfloat16 and float16 in float32, which changes NaN payloads, and lacks
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
    # Indexing keeps the order of the strides that it finds; the result must be contiguous.
    return torch.where(padding, fill, source[rows, index.clamp_min(0)]).contiguous()


def _gather_by_scatter(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...]
) -> torch.Tensor:
    """The same result for `torch.func` transforms and exports, which look through Functions and lose their gradients.

    PyTorch must differentiate these operations itself, so they work on the floats: integers have no derivatives.
    """
    fill = _fill_tensor(words, values)
    # A scatter, because its derivative is a gather. Input padding goes to an extra column, which is cut off.
    batch, columns = index.shape
    trailing = [1] * (values.ndim - 2)
    padding = (torch.cat((index, index.new_full((batch, 1), -1)), 1) < 0).view(batch, columns + 1, *trailing)
    # Made from the values and the map, so that it has every axis that `vmap` gave to either. Where `vmap` expands the
    # target of a scatter, Inductor (2.13) writes the whole batch to one place.
    target = torch.where(padding, fill, values.new_zeros(batch, columns + 1, *values.shape[2:]))
    places = torch.where(inverse < 0, columns, inverse).view(*inverse.shape, *trailing).expand(values.shape)
    return torch.scatter(target, 1, places, values)[:, :columns].contiguous()
