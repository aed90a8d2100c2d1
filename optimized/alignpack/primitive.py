"""The raw operator `alignpack::gather_rows`, for which `alignpack.doors` finds the right way in.

An operator and not a plain function, because transforms of PyTorch see operators: fake and meta tensors take its shape,
tracers record it, selective checkpointing decides about it as one. A recorded graph can be differentiated backwards, as
often as one likes; all else stands in `alignpack.doors`.
"""

from typing import Any

import torch

from alignpack.fill import zero_words
from alignpack.implementations import BACKENDS

_LIBRARY = torch.library.Library("alignpack", "DEF")
_LIBRARY.define(
    "gather_rows(Tensor values, Tensor index, Tensor inverse, int[] words, str backend) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _gather_rows(
    values: torch.Tensor, index: torch.Tensor, _inverse: torch.Tensor, words: list[int], backend: str
) -> torch.Tensor:
    return BACKENDS[backend].gather_rows(values, index, tuple(words))


def _gather_rows_fake(
    values: torch.Tensor, index: torch.Tensor, _inverse: torch.Tensor, _words: list[int], _backend: str
) -> torch.Tensor:
    return values.new_empty(*index.shape, *values.shape[2:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG001 - given by name
    _, index, inverse, _, backend = inputs
    ctx.save_for_backward(index, inverse)
    ctx.backend = backend


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    index, inverse = ctx.saved_tensors
    return gather_rows(gradient, inverse, index, zero_words(gradient.dtype), ctx.backend), None, None, None, None


_LIBRARY.impl("gather_rows", _gather_rows, "CompositeExplicitAutograd")
torch.library.register_fake("alignpack::gather_rows", _gather_rows_fake, lib=_LIBRARY)
torch.library.register_autograd("alignpack::gather_rows", _backward, setup_context=_setup_context, lib=_LIBRARY)

OPERATOR = torch.ops.alignpack.gather_rows.default


def gather_rows(
    values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor, words: tuple[int, ...], backend: str
) -> torch.Tensor:
    """Call the operator."""
    moved: torch.Tensor = OPERATOR(values, index, inverse, words, backend)
    return moved
