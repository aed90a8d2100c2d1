"""The raw operator `alignpack::gather_rows`: rows are moved, gradients are somebody else's (see `alignpack.doors`).

An operator and not a plain function, because transforms of PyTorch see operators: fake and meta tensors take its shape,
tracers record it, selective checkpointing decides about it as one.
"""

import torch

from alignpack.implementations import BACKENDS

_LIBRARY = torch.library.Library("alignpack", "DEF")
_LIBRARY.define(
    "gather_rows(Tensor values, Tensor index, int[] words, str backend) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _gather_rows(values: torch.Tensor, index: torch.Tensor, words: list[int], backend: str) -> torch.Tensor:
    return BACKENDS[backend].gather_rows(values, index, tuple(words))


def _gather_rows_fake(values: torch.Tensor, index: torch.Tensor, _words: list[int], _backend: str) -> torch.Tensor:
    return values.new_empty(*index.shape, *values.shape[2:])


_LIBRARY.impl("gather_rows", _gather_rows, "CompositeExplicitAutograd")
torch.library.register_fake("alignpack::gather_rows", _gather_rows_fake, lib=_LIBRARY)

OPERATOR = torch.ops.alignpack.gather_rows.default


def gather_rows(values: torch.Tensor, index: torch.Tensor, words: tuple[int, ...], backend: str) -> torch.Tensor:
    """Call the operator."""
    moved: torch.Tensor = OPERATOR(values, index, words, backend)
    return moved
