"""`pack` and `restore` as functions of values, each beside the plain formula that it must agree with."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from alignpack import PackedSequenceLayout
from alignpack_fuzz.targets import Target

LENGTHS = torch.tensor([[3, 2], [1, -1000]])
SPANS = torch.tensor([[4, 2], [5, 0]])


@dataclass(frozen=True)
class Move:
    """One direction, called by the library's name for it or written out.

    Attributes:
        apply: the library's call, of a layout and values.
        formula: the same in operations that PyTorch differentiates, batches and traces by itself.
        taken, given: the leading shapes of values and results.
    """

    name: str
    layout: PackedSequenceLayout
    apply: Callable[[PackedSequenceLayout, torch.Tensor], torch.Tensor]
    formula: Callable[[PackedSequenceLayout, torch.Tensor], torch.Tensor]
    taken: tuple[int, int]
    given: tuple[int, int]

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Move as the library does."""
        return self.apply(self.layout, values)

    def plainly(self, values: torch.Tensor) -> torch.Tensor:
        """Move by the formula."""
        return self.formula(self.layout, values)


def gathered(values: torch.Tensor, index: torch.Tensor, fill: float) -> torch.Tensor:
    rows = torch.arange(len(index)).unsqueeze(1)
    padding = (index < 0).view(*index.shape, *[1] * (values.ndim - 2))
    return torch.where(padding, fill, values[rows, index.clamp_min(0)])


@pytest.fixture
def layout(fast: Target) -> PackedSequenceLayout:
    """Two rows with input padding, packed padding and an absent document."""
    built: PackedSequenceLayout = fast.packed_layout(LENGTHS, SPANS, (2, 7), 4)
    return built


@pytest.fixture(params=["pack", "restore"])
def move(request: pytest.FixtureRequest, layout: PackedSequenceLayout) -> Move:
    """Both directions."""
    if request.param == "pack":
        return Move(
            "pack",
            layout,
            lambda layout, values: layout.pack(values, 2),
            lambda layout, values: gathered(values, layout.source_indices, 2),
            (2, 7),
            (2, 8),
        )
    return Move(
        "restore",
        layout,
        lambda layout, values: layout.restore(values),
        lambda layout, values: gathered(values, layout.input_positions, 0),
        (2, 8),
        (2, 7),
    )
