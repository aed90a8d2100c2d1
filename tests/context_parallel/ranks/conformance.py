"""The conformance cases that need two ranks; `tests/conformance/test_ranks.py` says which is which."""

import pytest
import torch
import torch.distributed as dist

from alignpack import packed_layout
from alignpack.context_parallel import gather_sequence, shard_batch


def check_gathered_columns_stand_in_the_order_of_the_ranks(group: dist.ProcessGroup) -> None:
    local = torch.arange(8).view(1, 2, 4)[:, dist.get_rank(group)]
    assert gather_sequence(local, group).tolist() == [list(range(8))]


def check_unequal_widths_are_refused_on_every_rank(group: dist.ProcessGroup) -> None:
    length = 9 if dist.get_rank(group) else 5
    layout = packed_layout(torch.tensor([[length]]), None, (1, length), 4)
    with pytest.raises(ValueError, match=r"the shape is \[1, 8\] on rank 0, \[1, 12\] on rank 1"):
        gather_sequence(layout.position_ids, group)


def check_remote_uses_are_summed(group: dist.ProcessGroup) -> None:
    weights = torch.tensor([[1.0, 10.0, 100.0, 1000.0]])
    local = torch.tensor([[1.0, 2.0]], requires_grad=True)
    weighted = gather_sequence(local, group) * weights
    own = slice(2, 4) if dist.get_rank(group) else slice(0, 2)
    (gradient,) = torch.autograd.grad(weighted[:, own].sum(), local, retain_graph=True)
    assert gradient.tolist() == ([[100, 1000]] if dist.get_rank(group) else [[1, 10]])
    (gradient,) = torch.autograd.grad(weighted.sum(), local)
    assert gradient.tolist() == ([[200, 2000]] if dist.get_rank(group) else [[2, 20]])


def check_a_rank_of_padding_joins_with_zero_gradients(group: dist.ProcessGroup) -> None:
    layout = packed_layout(torch.tensor([[2]]), torch.tensor([[8]]), (1, 8), 4, 8)
    values = torch.ones(1, 8, requires_grad=True)
    local = shard_batch(layout, {"values": values}, group)
    gathered = gather_sequence(local["values"], group)
    assert gathered.tolist() == [[1, 1, 0, 0, 0, 0, 0, 0]]
    weight = 0.0 if local["padding_mask"].all() else 1.0
    assert weight == 1 - dist.get_rank(group)
    (gathered.sum() * weight).backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[weight, weight, 0, 0, 0, 0, 0, 0]]
