"""Groups and shifts by compiled loops, where the laws do not reach: threads, maps made by hand, modes that trace."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from alignpack import PackedSequenceLayout, packed_layout
from alignpack._backends import select_backend_for, torch_backend
from alignpack._backends.numba_cpu import backend as numba_cpu
from alignpack._backends.numba_cpu import kernels, threads
from alignpack_fuzz.compare import assert_same_bits

LENGTHS = torch.tensor([[3, 6, 0], [9, -1000, -1000], [1, 1, 1], [0, 0, 0], [4, 4, 1]])


def build() -> PackedSequenceLayout:
    return packed_layout(LENGTHS, None, (5, 9), 4, length_multiple=8)


def assert_same(layout: PackedSequenceLayout) -> None:
    """Both forms give the same, and the compiled one leaves what it reads alone."""
    before = [tensor.clone() for tensor in layout._tensors()]
    for ratio in (1, 2, 4):
        arguments = (layout.sequence_ids, layout.position_ids, layout.offset, ratio)
        for actual, expected in zip(
            numba_cpu.group_fields(*arguments), torch_backend.group_fields(*arguments), strict=True
        ):
            assert_same_bits(actual, expected)
    for k in (1, -1, 5, 2**70):
        maps = (layout.source_indices, layout.input_positions, layout.sequence_ids, k)
        for actual, expected in zip(numba_cpu.shift_maps(*maps), torch_backend.shift_maps(*maps), strict=True):
            assert_same_bits(actual, expected)
    for tensor, kept in zip(layout._tensors(), before, strict=True):
        assert_same_bits(tensor, kept)


def test_threads_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for layout in (build(), build()[:1], build()[:0], build().shard(1, 2)):
        assert_same(layout)


def test_fields_of_any_strides() -> None:
    layout = build()
    spread = [tensor.t().contiguous().t() for tensor in layout._tensors()]
    assert not any(tensor.is_contiguous() for tensor in spread)
    assert_same(PackedSequenceLayout(*spread, alignment=4))


def test_a_map_that_leads_out_of_its_row_is_not_followed() -> None:
    layout = build()
    source = layout.source_indices.masked_fill(layout.source_indices == 2, 10**9)
    moved = replace(layout, source_indices=source).shift(1)
    assert moved.source_indices[0].tolist()[:3] == [1, 10**9, -1]
    assert moved.input_positions[0].tolist()[:3] == [-1, 0, -1]


@pytest.mark.parametrize(
    "derive", [lambda layout: layout.groups(2), lambda layout: layout.shift(1)], ids=["groups", "shift"]
)
def test_fields_that_do_not_fit_are_read_by_no_loop(derive: Callable[[PackedSequenceLayout], object]) -> None:
    layout = build()
    with pytest.raises(RuntimeError):
        derive(replace(layout, sequence_ids=layout.sequence_ids[:, :4]))


def test_groups_that_do_not_fill_the_row_are_not_cut_off() -> None:
    layout = build()
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        replace(layout, alignment=5).groups(5)


def test_what_traces_sees_every_operation() -> None:
    layout = build()
    fields = layout.sequence_ids, layout.position_ids
    assert select_backend_for(*fields).name == "numba"
    with FakeTensorMode() as mode:
        assert select_backend_for(*fields).name == "torch"
        fake = mode.from_tensor(layout.sequence_ids)
    for pair in ((fake, fields[0]), (fields[0], fake), (*fields, fake)):
        assert select_backend_for(*pair).name == "torch"
    seen: list[str] = []

    def look(value: torch.Tensor) -> torch.Tensor:
        seen.append(select_backend_for(*fields).name)
        return value

    torch.func.vmap(look)(torch.ones(2))
    assert seen == ["torch"]
    assert select_backend_for(*layout.to("meta")._tensors()).name == "torch"


def test_a_run_that_leads_out_of_the_input_row_writes_nothing_behind_it() -> None:
    """As a map made by hand may: the kernel by itself, because a guard must stand behind its memory."""
    slots, columns = 100, 40
    source, ids = torch.arange(slots), torch.ones(slots, dtype=torch.int64)
    sources, positions = torch.zeros(slots, dtype=torch.int64), torch.full((slots,), 77)
    fields = (source, ids, slots, columns, 1, sources, positions)
    kernels.write_shifted_maps(*(f.data_ptr() if isinstance(f, torch.Tensor) else f for f in fields), 0, 1)
    assert positions.tolist() == [-1, *range(columns - 1), *[77] * (slots - columns)]
