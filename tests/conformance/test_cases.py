"""The cases of the README that are code; each test names the ids that it shows."""

import copy
import dataclasses
import math
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import alignpack
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.payloads import random_bits
from alignpack_fuzz.targets import Target

L1 = Tables(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4)
L2 = Tables(torch.tensor([[3]]), None, (1, 3), 4)
L3 = Tables(torch.tensor([[1, 1]]), torch.tensor([[4, 4]]), (1, 8), 2)
ONE_TOKEN_DOCUMENTS = Tables(torch.ones(1, 64, dtype=torch.int64), None, (1, 64), 128)


@pytest.mark.case("B5")
def test_the_inverse_zeroes_exactly_the_input_padding(target: Target) -> None:
    layout = L1.build(target)
    values = torch.tensor([[10, 11, 12, 99, 20, 21, 98, 97]])
    assert layout.restore(layout.pack(values)).tolist() == [[10, 11, 12, 0, 20, 21, 0, 0]]
    assert layout.pack(values, -100).tolist() == [[10, 11, 12, -100, 20, 21, -100, -100]]


@pytest.mark.case("B9")
def test_the_restored_width_is_the_input_width(target: Target) -> None:
    layout = L3.build(target)
    packed = layout.pack(torch.arange(8).unsqueeze(0))
    assert packed.tolist() == [[0, 0, 4, 0]]
    assert layout.restore(packed + 1).tolist() == [[1, 0, 0, 0, 5, 0, 0, 0]]


@pytest.mark.case("D1")
def test_padding_does_not_index_from_the_end(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3]]), None, (1, 4), 4)
    assert layout.pack(torch.tensor([[1, 2, 3, 9]])).tolist() == [[1, 2, 3, 0]]


@pytest.mark.case("D2")
def test_a_mask_stays_bool(target: Target) -> None:
    packed = L2.build(target).pack(torch.tensor([[True, False, True]]))
    assert packed.dtype == torch.bool
    assert packed.tolist() == [[True, False, True, False]]


@pytest.mark.case("D3")
def test_integers_do_not_pass_through_a_float(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[1]]), None, (1, 1), 2)
    packed = layout.pack(torch.tensor([[16777217]]), fill=0.0)
    assert packed.dtype == torch.int64
    assert packed.tolist() == [[16777217, 0]]
    for fill in (0.5, math.nan):
        with pytest.raises(ValueError, match="fill must be an integer"):
            layout.pack(torch.tensor([[16777217]]), fill=fill)


@pytest.mark.case("D5")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_float8_is_copied_by_its_bits(target: Target, dtype: torch.dtype) -> None:
    values = torch.tensor([[0x7F, 0x80, 0xFF]], dtype=torch.uint8).view(dtype)
    packed = L2.build(target).pack(values)
    assert packed.dtype == dtype
    assert packed.view(torch.uint8).tolist() == [[0x7F, 0x80, 0xFF, 0x00]]


@pytest.mark.case("D6")
def test_garbage_in_padding_reaches_nothing(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[1]]), torch.tensor([[2]]), (1, 2), 2)
    assert_same_bits(layout.pack(torch.tensor([[1.0, math.nan]])), torch.tensor([[1.0, 0.0]]))
    layout = target.packed_layout(torch.tensor([[2]]), None, (1, 6), 4)
    restored = layout.restore(torch.tensor([[7.0, 8.0, math.nan, math.inf]]))
    assert_same_bits(restored, torch.tensor([[7.0, 8.0, 0.0, 0.0, 0.0, 0.0]]))


@pytest.mark.case("D9")
@pytest.mark.parametrize(
    "odd",
    [
        lambda base: base[:8, :2].transpose(0, 1),
        lambda base: base[:1, :8].expand(2, 8, 6),
        lambda base: base[:2, ::2],
    ],
    ids=["transposed", "expanded", "sliced"],
)
def test_any_strides(target: Target, odd: Callable[[torch.Tensor], torch.Tensor]) -> None:
    layout = target.packed_layout(torch.tensor([[3, 2], [8, 0]]), torch.tensor([[4, 4], [8, 0]]), (2, 8), 4)
    base = torch.arange(16 * 16 * 6).reshape(16, 16, 6)
    before = base.clone()
    values = odd(base)
    assert not values.is_contiguous()
    packed = layout.pack(values, -1)
    assert packed.is_contiguous()
    assert_same_bits(packed, layout.pack(values.contiguous(), -1))
    assert_same_bits(base, before)


@pytest.mark.case("D11")
def test_nothing_is_broadcast(target: Target) -> None:
    layout = target.packed_layout(torch.tensor([[3], [2]]), None, (2, 3), 4)
    for shape in ([1, 3], [2, 4], [3]):
        with pytest.raises(ValueError, match=rf"\[2, 3, \.\.\.\] to fit the layout, got \[{str(shape)[1:-1]}\]"):
            layout.pack(torch.zeros(shape))
    for shape in ([2, 3], [2, 3, 5], [2, 3, 0]):
        assert layout.pack(torch.zeros(shape)).shape == (2, 4, *shape[2:])


@pytest.mark.case("E1")
def test_nan_upstream_at_padding_reaches_nothing(target: Target) -> None:
    gradient = target.pack_gradient(L2.build(target), torch.tensor([[1.0, 1.0, 1.0, math.nan]]))
    assert_same_bits(gradient, torch.tensor([[1.0, 1.0, 1.0]]))


@pytest.mark.case("E2")
def test_the_gradient_does_not_accumulate(target: Target) -> None:
    layout = ONE_TOKEN_DOCUMENTS.build(target)
    assert layout.source_indices.shape == (1, 8192)
    upstream = torch.ones(1, 8192, 4)
    with profile(activities=[ProfilerActivity.CPU]) as run:
        gradient = target.pack_gradient(layout, upstream)
    assert_same_bits(gradient, torch.ones(1, 64, 4))
    names = {event.key for event in run.key_averages()}
    assert not {name for name in names if any(word in name for word in ("scatter", "index_add", "index_put", "sort"))}


@pytest.mark.case("E4")
def test_an_expanded_upstream_gradient(target: Target) -> None:
    upstream = torch.ones(()).expand(1, 4)
    assert_same_bits(target.pack_gradient(L2.build(target), upstream), torch.ones(1, 3))


@pytest.mark.case("E6")
@pytest.mark.parametrize("name", ["pack", "restore"])
def test_second_derivatives(fast: Target, name: str) -> None:
    move = getattr(L1.build(fast), name)
    values = torch.randn(1, 8, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda values: move(values).pow(3), values)


@pytest.mark.case("E9")
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation(fast: Target, use_reentrant: bool) -> None:
    layout: alignpack.PackedSequenceLayout = L1.build(fast)

    def block(values: torch.Tensor) -> torch.Tensor:
        packed = layout.pack(values).sin()
        return layout.restore(packed).mul(values)

    def run(recompute: bool) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.linspace(-1, 1, 8).reshape(1, 8).requires_grad_()
        result = checkpoint(block, values, use_reentrant=use_reentrant) if recompute else block(values)
        result.sum().backward()
        assert values.grad is not None
        return result.detach(), values.grad

    for recomputed, plain in zip(run(True), run(False), strict=True):
        assert_same_bits(recomputed, plain)


@pytest.mark.case("F2")
def test_a_shard_does_not_cut_a_group(target: Target) -> None:
    tables = Tables(torch.tensor([[1, 3, 9, 17]]), None, (1, 30), 2)
    layout = tables.build(target)
    assert layout.source_indices.shape == (1, 34)
    with pytest.raises(ValueError, match="length_multiple=4"):
        layout.shard(0, 2)
    layout = dataclasses.replace(tables, length_multiple=4).build(target)
    assert layout.source_indices.shape == (1, 36)
    assert layout.shard(1, 2).source_indices.shape == (1, 18)


@pytest.mark.case("F9")
def test_a_shard_that_starts_inside_a_document(target: Target) -> None:
    shard = target.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16).shard(1, 2)
    assert shard.sequence_ids.tolist() == [[2, 0, 0, 0, 0, 0, 0, 0]]
    assert shard.position_ids.tolist() == [[4, 0, 0, 0, 0, 0, 0, 0]]
    assert shard.source_indices.tolist() == [[7, -1, -1, -1, -1, -1, -1, -1]]


@pytest.mark.slow
@pytest.mark.case("H10")
def test_import_leaves_cuda_alone_and_workers_may_fork() -> None:
    program = """
import torch
import alignpack

assert not torch.cuda.is_initialized()

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, row):
        return alignpack.packed_layout(torch.tensor([[3, 2 + row]]), None, (1, 6), 4)

alignpack.packed_layout(torch.tensor([[1]]), None, (1, 1), 4)  # used before the fork as well
loader = torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=1, multiprocessing_context="fork")
print([layout.source_indices.tolist() for layout in loader])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "[[[0, 1, 2, -1, 3, 4, -1, -1]], [[0, 1, 2, -1, 3, 4, 5, -1]]]\n"), run


@pytest.mark.case("I1")
def test_wrappers_may_rebuild_a_layout(fast: Target) -> None:
    shard = fast.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4, 16).shard(1, 2)
    by_fields = {field.name: getattr(shard, field.name) for field in dataclasses.fields(shard)}
    for rebuilt in (dataclasses.replace(shard), type(shard)(**by_fields)):
        assert rebuilt is not shard
        assert rebuilt.equal(shard)
        assert (rebuilt.alignment, rebuilt.offset, rebuilt.row_length) == (4, 8, 16)


@pytest.mark.case("I2")
def test_mixed_devices_are_refused(fast: Target) -> None:
    with pytest.raises(ValueError, match="values must be on the device of the layout, cpu, got meta"):
        L2.build(fast).pack(torch.zeros(1, 3, device="meta"))


@pytest.mark.case("I4")
def test_equality_and_hash(fast: Target) -> None:
    first, second = L1.build(fast), L1.build(fast)
    assert (first == second, first == first, first.equal(second)) == (False, True, True)  # noqa: PLR0124
    assert {first: "found"}[first] == "found"


@pytest.mark.case("I5")
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda layout: pickle.loads(pickle.dumps(layout))])
def test_copies_are_equal(
    fast: Target, copied: Callable[[alignpack.PackedSequenceLayout], alignpack.PackedSequenceLayout]
) -> None:
    layout = L1.build(fast)
    duplicate = copied(layout)
    assert duplicate is not layout
    assert duplicate.equal(layout)
    values = random_bits((1, 8), torch.float32, seed=0)
    assert_same_bits(duplicate.pack(values), layout.pack(values))
