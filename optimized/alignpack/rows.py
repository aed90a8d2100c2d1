"""The path of every `pack` and `restore`: check once, choose the backend once, gather.

`pack` and `restore` are the same operation with the two index maps swapped, and so is the backward of each: the
adjoint of a gather through a map is a gather through the inverse map, because every real token has exactly one place on
either side. So no gradient is ever accumulated, and what stands at padding reaches nothing.
"""

import torch

from alignpack.compiled import traced_choice
from alignpack.doors import gather_rows
from alignpack.fill import Fill, as_number, fill_words
from alignpack.implementations import Backend, select_backend
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
    if torch.compiler.is_compiling():
        check_fit(values, inverse, values_name)
        return traced_choice(fill, values.dtype, fill_name, backend, values.device)
    number = as_number(fill, values.dtype, fill_name)
    check_fit(values, inverse, values_name)
    return fill_words(number, values.dtype, fill_name), select_backend(backend, values.device)
