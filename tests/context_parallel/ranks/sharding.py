"""Checks of lengths, shards and halos among ranks."""

import math

import torch
import torch.distributed as dist

from alignpack import PackedSequenceLayout, packed_layout
from alignpack._inputs.words import WORD_DTYPES
from alignpack.context_parallel import agree_on_length, gather_sequence, halo, packed_length, shard_batch
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.payloads import random_bits
from tests.context_parallel.ranks.columns import assert_three_derivatives_agree, normal_numbers, own_columns

COLUMNS = 4


def normal(group: dist.ProcessGroup, *trailing: int) -> torch.Tensor:
    """The same float64 numbers on every rank, `[2, size * COLUMNS, *trailing]`."""
    return normal_numbers((2, group.size() * COLUMNS, *trailing))


def documents(group: dist.ProcessGroup) -> PackedSequenceLayout:
    """Documents that cross from rank to rank, and a row whose second half is padding."""
    size = group.size()
    return packed_layout(
        torch.tensor([[3, 8 * size - 7, 1], [5, 0, 2]]), None, (2, 8 * size), 4, 8 * size, length_multiple=4 * size
    )


def check_shards_make_up_the_whole_batch(group: dist.ProcessGroup) -> None:
    layout = documents(group)
    shape = tuple(layout.input_positions.shape)
    batch = {
        "ids": torch.arange(math.prod(shape)).reshape(shape),
        "labels": torch.arange(math.prod(shape)).reshape(shape),
        "hidden": random_bits((*shape, 3), torch.bfloat16, seed=1),
    }
    local = shard_batch(layout, batch, group, fill={"labels": -100})
    assert list(local) == ["ids", "labels", "hidden", "position_ids", "sequence_ids", "padding_mask"]
    expected = layout.pack_batch(batch, fill={"labels": -100})
    expected |= {name: getattr(layout, name) for name in ("position_ids", "sequence_ids", "padding_mask")}
    for name, whole in expected.items():
        assert_same_bits(gather_sequence(local[name], group), whole)
    # One document begins before the last rank and ends in it.
    starts = gather_sequence(local["position_ids"], group).view(2, group.size(), -1)[0, :, 0]
    assert (starts[1:] > 0).any()
    restored = layout.shard(dist.get_rank(group), group.size()).restore(local["ids"])
    dist.all_reduce(restored, group=group)
    assert_same_bits(restored, layout.restore(expected["ids"]))


def check_a_rank_of_padding_only(group: dist.ProcessGroup) -> None:
    """Such a rank joins forward and backward, and weighs its loss with 0."""
    size = group.size()
    layout = packed_layout(torch.tensor([[2]]), torch.tensor([[8]]), (1, 8), 4, 4 * size, length_multiple=4 * size)
    values = torch.arange(1.0, 9.0).unsqueeze(0).requires_grad_()
    local = shard_batch(layout, {"values": values}, group)
    gathered = gather_sequence(local["values"], group)
    assert gathered.tolist() == [[1, 2] + [0] * (4 * size - 2)]
    weight = (~local["padding_mask"]).to(torch.float32)
    (weight * own_columns(gathered, group) * gathered.sum()).sum().backward()
    assert values.grad is not None
    if dist.get_rank(group):
        assert local["padding_mask"].all()
        assert values.grad.tolist() == [[0] * 8]
    else:
        assert values.grad.tolist() == [[6, 6, 0, 0, 0, 0, 0, 0]]  # of (1 + 2) ** 2


def check_ranks_agree_on_a_length(group: dist.ProcessGroup) -> None:
    rank, size = dist.get_rank(group), group.size()
    tables = torch.tensor([[5 if rank else 9]]), None, (1, 9), 4
    assert packed_length(*tables) == (8 if rank else 12)
    length = agree_on_length(packed_length(*tables), group)
    assert length == 12
    assert packed_layout(*tables, minimum_length=length).source_indices.shape == (1, 12)
    multiple = 4 * size
    length = agree_on_length(packed_length(*tables, length_multiple=multiple), group)
    assert length == -(-12 // multiple) * multiple
    assert agree_on_length(rank, group) == size - 1


def check_halo_is_the_end_of_the_rank_before(group: dist.ProcessGroup) -> None:
    rank = dist.get_rank(group)
    for seed, dtype in enumerate(WORD_DTYPES):
        full = random_bits((2, COLUMNS * group.size(), 3), dtype, seed=seed)
        for width in (0, 1, COLUMNS):
            for check in (True, False):
                found = halo(own_columns(full, group), width, group, check=check)
                end = rank * COLUMNS
                expected = full[:, end - width : end] if rank else torch.zeros(2, width, 3).to(dtype)
                assert_same_bits(found, expected.contiguous())
                assert found.is_contiguous()


def check_zeros_of_the_first_rank_do_not_come_from_products(group: dist.ProcessGroup) -> None:
    local = torch.full((1, 2), math.nan, requires_grad=True)
    found = halo(local, 1, group)
    (gradient,) = torch.autograd.grad(found, local, torch.full((1, 1), math.inf))
    first, last = dist.get_rank(group) == 0, dist.get_rank(group) == group.size() - 1
    assert found.tolist() == [[0.0]] if first else found.isnan().all()
    assert found.requires_grad
    assert gradient.tolist() == [[0.0, 0.0 if last else math.inf]]


def windows(padded: torch.Tensor, width: int) -> torch.Tensor:
    """Each column's product with the `width` columns before it, summed: a loss that looks back."""
    columns = padded.shape[1] - width
    return sum((padded[:, width:] * padded[:, back : back + columns].sin()).sum() for back in range(width + 1))  # type: ignore[return-value]


def check_derivatives_of_a_halo(group: dist.ProcessGroup) -> None:
    width = 3
    full = normal(group, 2).requires_grad_()
    local = own_columns(full.detach(), group).clone().requires_grad_()
    loss = windows(torch.cat([full.new_zeros(2, width, 2), full], dim=1), width)
    own_loss = windows(torch.cat([halo(local, width, group), local], dim=1), width)
    assert_three_derivatives_agree(full, loss, local, own_loss, group)


def check_halo_in_forward_mode(group: dist.ProcessGroup) -> None:
    full, tangent = normal(group), normal(group).cos()
    with torch.autograd.forward_ad.dual_level():
        local = torch.autograd.forward_ad.make_dual(own_columns(full, group), own_columns(tangent, group))
        found = torch.autograd.forward_ad.unpack_dual(halo(local, 2, group)).tangent
    end = dist.get_rank(group) * COLUMNS
    assert found is not None
    assert torch.equal(found, tangent[:, end - 2 : end] if end else torch.zeros_like(found))


def check_backward_over_forward_mode_of_a_halo(group: dist.ProcessGroup) -> None:
    tangent = own_columns(normal(group), group).clone().requires_grad_()
    with torch.autograd.forward_ad.dual_level():
        local = torch.autograd.forward_ad.make_dual(torch.zeros_like(tangent), tangent)
        found = torch.autograd.forward_ad.unpack_dual(halo(local, 2, group)).tangent
        assert found is not None
        (gradient,) = torch.autograd.grad((found**2).sum(), tangent)
    expected = 2 * tangent.detach()
    expected[:, : COLUMNS - 2] = 0
    if dist.get_rank(group) == group.size() - 1:
        expected.zero_()
    assert torch.equal(gradient, expected)
