"""`torch.export`: programs of any size, stored and loaded again, and with gradients where their example had some."""

import io

import pytest
import torch

from alignpack import PackedSequenceLayout, packed_layout
from tests.torch_version import LOADING_WARNS

# PyTorch's own, on the way into its compilers.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Model(torch.nn.Module):
    """What is exported: there and back, through something that is not linear."""

    def forward(self, layout: PackedSequenceLayout, values: torch.Tensor) -> torch.Tensor:
        """Move, compute, move back."""
        return layout.restore(layout.pack(values, -1).sin())


@LOADING_WARNS
@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_dimensions_and_save_and_load(strict: bool) -> None:
    batch, slots, columns = (torch.export.Dim(name, min=2) for name in ("batch", "slots", "columns"))
    packed = {0: batch, 1: columns}
    program = torch.export.export(
        Model(),
        (packed_layout(torch.tensor([[3, 2], [1, -1000]]), None, (2, 7), 4), torch.randn(2, 7, 3)),
        dynamic_shapes=([packed, {0: batch, 1: slots}, packed, packed], {0: batch, 1: slots}),
        strict=strict,
    )
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    layout = packed_layout(torch.tensor([[4, 6], [1, 7], [2, 2]]), None, (3, 11), 4)
    values = torch.randn(3, 11, 3)
    torch.testing.assert_close(loaded(layout, values), Model()(layout, values))


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_has_gradients_where_its_example_had(strict: bool) -> None:
    layout = packed_layout(torch.tensor([[3, 2], [1, -1000]]), None, (2, 7), 4)
    values = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    program = torch.export.export(Model(), (layout, values), strict=strict)
    weights = torch.randn(2, 7, 3, dtype=torch.float64)

    def gradients(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        (first,) = torch.autograd.grad((model(layout, values) ** 3 * weights).sum(), values, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), values)
        return first, second

    for found, expected in zip(gradients(program.module()), gradients(Model()), strict=True):
        assert expected.count_nonzero() > 0
        torch.testing.assert_close(found, expected)
