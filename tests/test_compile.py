"""`torch.compile`: calls that move values break the graph cleanly, the others are traced; results stay what they are."""

import pytest
import torch

from alignpack import CompressionGroups, PackedSequenceLayout, packed_layout
from alignpack_fuzz.compare import assert_same_bits


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's, when it resumes after a break
def test_compiled_code_breaks_the_graph_and_computes_the_same() -> None:
    lengths = torch.tensor([[3, 2], [1, -1000]])

    def step(values: torch.Tensor, layout: PackedSequenceLayout) -> tuple[torch.Tensor, torch.Tensor]:
        built = packed_layout(lengths, None, (2, 5), 4)
        return layout.restore(layout.pack(values * 2, 7).sin()), built.pack(values)

    layout = packed_layout(lengths, None, (2, 5), 4)
    values = torch.linspace(-1, 1, 30).reshape(2, 5, 3).requires_grad_()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(step, backend="eager")
    for actual, expected in zip(compiled(values, layout), step(values, layout), strict=True):
        assert_same_bits(actual, expected)
        gradients = (torch.autograd.grad(result.sum(), values, retain_graph=True)[0] for result in (actual, expected))
        assert_same_bits(*gradients)
    # Nothing of alignpack is traced, so nothing of it can be refused: only the caller's own code is in the graphs.
    assert torch._dynamo.utils.counters["stats"]["calls_captured"] <= 10


def test_groups_shifts_and_shards_are_traced_without_a_break() -> None:
    layout = packed_layout(torch.tensor([[3, 6], [1, 0]]), None, (2, 9), 4, length_multiple=8)

    def derive(layout: PackedSequenceLayout) -> tuple[CompressionGroups, PackedSequenceLayout, torch.Tensor]:
        return layout.groups(2), layout.shift(1).shard(1, 2), layout.token_counts

    torch._dynamo.reset()
    groups, shard, counts = torch.compile(derive, backend="eager", fullgraph=True)(layout)
    assert groups.equal(layout.groups(2))
    assert shard.equal(layout.shift(1).shard(1, 2))
    assert_same_bits(counts, layout.token_counts)
