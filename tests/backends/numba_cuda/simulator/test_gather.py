"""The gather kernels: every width of word, dtype, alignment and stride, and nothing written beside the output."""

import numpy as np
import pytest
import torch

from alignpack._backends.numba_cuda.backend import gather_into, gather_slots
from alignpack._inputs.arguments import fill_words
from alignpack_fuzz.compare import assert_same_bits, bytes_of
from alignpack_fuzz.payloads import Payload, Strides, random_bits
from alignpack_fuzz.simulator import Simulator
from alignpack_fuzz.strategies import DTYPES

GUARD = 64
INDEX = torch.tensor([[2, -1, 0, 4, 3, -1, 1], [-1, 4, 4, 0, -1, -1, 2], [-1, -1, -1, -1, -1, -1, 4]])
BATCH, COLUMNS, SLOTS = *INDEX.shape, 5


def expected(values: torch.Tensor, index: torch.Tensor, fill: complex) -> torch.Tensor:
    """The definition, slot by slot, in bytes; so that neither the library's words nor the kernels' are used."""
    filled = bytes_of(torch.full((1,), fill, dtype=values.dtype)).flatten()
    source = bytes_of(values)
    out = filled.expand(*index.shape, *source.shape[2:]).clone()
    for b, row in enumerate(index.tolist()):
        for column, slot in enumerate(row):
            if slot >= 0:
                out[b, column] = source[b, slot]
    return out


def at_offset(values: torch.Tensor, offset: int) -> torch.Tensor:
    """The same values at an address that is `offset` bytes past a multiple of 64."""
    memory = torch.zeros(values.nbytes + 2 * 64, dtype=torch.uint8)
    start = -memory.data_ptr() % 64 + offset
    moved = memory[start : start + values.nbytes].view(values.dtype).view(values.shape)
    moved.copy_(values)
    return moved


def guarded(dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An output `offset` bytes past a multiple of 64 in the middle of other memory, and all of that memory as bytes."""
    size = torch.Size(shape).numel() * dtype.itemsize
    memory = torch.full((size + 2 * GUARD + 64,), 0xA5, dtype=torch.uint8)
    start = -memory.data_ptr() % 64 + GUARD + offset
    return memory[start : start + size].view(dtype).view(shape), memory


def check(values: torch.Tensor, index: torch.Tensor, fill: complex, offset: int = 0) -> None:
    out, memory = guarded(values.dtype, (*index.shape, *values.shape[2:]), offset)
    start = out.data_ptr() - memory.data_ptr()
    before, behind = memory[:start].clone(), memory[start + out.nbytes :].clone()
    gather_into(out, values, index, fill_words(fill, values.dtype))
    assert torch.equal(bytes_of(out), expected(values, index, fill))
    assert torch.equal(memory[:start], before), "bytes in front of the output changed"
    assert torch.equal(memory[start + out.nbytes :], behind), "bytes behind the output changed"


def words_used(simulator: Simulator) -> set[str]:
    return {launch.kernel.name for launch in simulator.launches}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("trailing", [(), (1,), (3,), (16,), (2, 5), (33,)], ids=str)
def test_every_dtype_and_width(dtype: torch.dtype, trailing: tuple[int, ...], simulator: Simulator) -> None:
    values = random_bits((BATCH, SLOTS, *trailing), dtype, seed=len(trailing))
    for fill in (0, 1):
        check(values, INDEX, fill)
    if dtype.is_floating_point:
        check(values, INDEX, -0.0 if dtype not in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz) else 2.0)
    if dtype.is_complex:
        check(values, INDEX, complex(-0.0, 3))
    assert len(simulator.launches) == 2 + dtype.is_floating_point + dtype.is_complex


@pytest.mark.parametrize(
    ("offset", "word"), [(0, 16), (16, 16), (8, 8), (24, 8), (4, 4), (12, 4), (2, 2), (6, 2), (1, 1), (3, 1)]
)
def test_words_are_as_wide_as_addresses_allow(offset: int, word: int, simulator: Simulator) -> None:
    values = random_bits((BATCH, SLOTS, 48), torch.uint8, seed=1)
    check(at_offset(values, offset), INDEX, 7)
    check(values, INDEX, 7, offset)
    assert words_used(simulator) == {f"gather_wide_{word}"}


@pytest.mark.parametrize(("width", "word"), [(16, 16), (24, 8), (12, 4), (6, 2), (5, 1), (80, 16)])
def test_words_are_as_wide_as_slots_allow(width: int, word: int, simulator: Simulator) -> None:
    check(random_bits((BATCH, SLOTS, width), torch.uint8, seed=2), INDEX, 7)
    kernel = "gather_narrow" if width == word else "gather_wide"
    assert words_used(simulator) == {f"{kernel}_{word}"}


@pytest.mark.parametrize(
    ("batch", "slots", "strides", "word"),
    [
        (3, 5, (5 * 16 + 8, 16), 8),  # rows decide
        (3, 5, (5 * 16 + 1, 16), 1),
        (3, 5, (5 * 32, 20), 4),  # slots decide
        (3, 5, (2, 32), 2),  # rows that overlap
        (3, 5, (0, 16), 16),  # one row for all
        (3, 5, (80, 0), 16),  # one slot for all
        (1, 5, (3, 16), 16),  # a stride that is never walked
        (3, 1, (16, 3), 16),
    ],
)
def test_words_are_as_wide_as_strides_allow(
    batch: int, slots: int, strides: tuple[int, int], word: int, simulator: Simulator
) -> None:
    memory = at_offset(random_bits((1024,), torch.uint8, seed=12), 0)
    index = INDEX[:batch].clamp_max(slots - 1)
    for width in (16, 48):
        check(memory.as_strided((batch, slots, width), (*strides, 1)), index, 7)
    kernel = "gather_narrow" if word == 16 else "gather_wide"
    assert words_used(simulator) == {f"{kernel}_{word}", f"gather_wide_{word}"}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize("trailing", [(), (3,), (4, 4)], ids=str)
@pytest.mark.parametrize("strides", ["transposed", "every second", "expanded", "one element", "offset"])
def test_strides(strides: Strides, trailing: tuple[int, ...], dtype: torch.dtype, simulator: Simulator) -> None:
    check(Payload(strides, (BATCH, SLOTS, *trailing), dtype, 3).tensor, INDEX, 1)


def test_dense_slots_are_read_in_place(simulator: Simulator) -> None:
    memory = random_bits((SLOTS, BATCH, 2, 16), torch.uint8, seed=4)
    view = memory.transpose(0, 1)
    check(view, INDEX, 1)
    check(view[:, :, 1], INDEX, 1)  # only a part of each slot
    addresses = [launch.arguments[0] for launch in simulator.launches]
    assert addresses == [memory.data_ptr(), memory.data_ptr() + 16]
    assert words_used(simulator) == {"gather_wide_16", "gather_narrow_16"}
    check(memory.permute(1, 0, 3, 2), INDEX, 1)  # what is not dense is copied
    assert simulator.launches[-1].arguments[0] not in range(memory.data_ptr(), memory.data_ptr() + memory.nbytes)


def test_elements_at_odd_addresses_are_copied(simulator: Simulator) -> None:
    memory = at_offset(random_bits((BATCH * SLOTS * 4 + 1,), torch.float64, seed=5), 0)
    values = torch.from_numpy(memory.numpy()[1:].view(np.complex128)).view(BATCH, SLOTS, 2)
    assert values.data_ptr() % 16 == 8
    check(values, INDEX, complex(1, 2))  # a fill of two words would not fit words of 8 bytes
    assert words_used(simulator) == {"gather_wide_16"}


def test_lazy_conjugates_and_negatives(simulator: Simulator) -> None:
    values = random_bits((BATCH, SLOTS, 3), torch.complex64, seed=6)
    check(values.conj(), INDEX, 1)
    check(values.conj().imag, INDEX, 1)
    check(torch._neg_view(random_bits((BATCH, SLOTS, 3), torch.int32, seed=6)), INDEX, 1)  # dense as it is


def test_an_index_of_any_strides(simulator: Simulator) -> None:
    values = random_bits((BATCH, SLOTS, 3), torch.int32, seed=7)
    check(values, INDEX.repeat_interleave(2, dim=1)[:, ::2], 1)
    check(values, INDEX.t().contiguous().t(), 1)


@pytest.mark.parametrize("shape", [(0, 5, 3), (3, 5, 0), (3, 5, 2, 0)], ids=str)
def test_nothing_is_launched_for_nothing(shape: tuple[int, ...], simulator: Simulator) -> None:
    values = torch.zeros(shape)
    index = INDEX[: shape[0]]
    assert gather_slots(values, index, (0,)).shape == (*index.shape, *shape[2:])
    assert gather_slots(torch.zeros(3, 5), torch.zeros(3, 0, dtype=torch.int64), (0,)).shape == (3, 0)
    assert not simulator.launches


@pytest.mark.parametrize("trailing", [(), (3,)], ids=str)
def test_rows_without_slots_are_filled(trailing: tuple[int, ...], simulator: Simulator) -> None:
    check(torch.zeros(BATCH, 0, *trailing), torch.full((BATCH, 4), -1), 1)
    assert len(simulator.launches) == 1


@pytest.mark.parametrize("trailing", [(), (3,)], ids=str)
def test_rows_of_many_turns(trailing: tuple[int, ...], simulator: Simulator) -> None:
    index = torch.arange(3 * 70).view(3, 70) * 7 % 41 - 1
    check(random_bits((3, 40, *trailing), torch.int16, seed=10), index, 1)


@pytest.mark.parametrize("trailing", [(), (3,)], ids=str)
def test_broken_maps_read_nothing(trailing: tuple[int, ...], simulator: Simulator) -> None:
    values = torch.ones(1, 4, *trailing, dtype=torch.int64)
    slots = torch.tensor([0, 4, 3, 2**40, -(2**63), 2**63 - 1])
    # In no order, so that each of the slots that a thread reads together meets each, beside right ones.
    index = slots[torch.randint(0, 6, (1, 200), generator=torch.Generator().manual_seed(11))]
    expected = torch.where((index == 0) | (index == 3), 1, 9)
    packed = gather_slots(values, index, (9,))
    assert torch.equal(packed, expected.view(1, 200, *[1] * len(trailing)).expand_as(packed))


def test_what_is_no_layout_is_left_to_pytorch(simulator: Simulator) -> None:
    values = torch.zeros(2, 4, 3)
    for index in (torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, 2)):
        with pytest.raises((RuntimeError, IndexError)):
            gather_slots(values, index, (0,))
    gather_slots(values, torch.zeros(2, 2, dtype=torch.int64, device="meta"), (0,))  # PyTorch gives a meta tensor
    assert not simulator.launches


@pytest.mark.parametrize("trailing", [(), (1, 3)], ids=str)
def test_offsets_beyond_32_bits(trailing: tuple[int, ...], simulator: Simulator) -> None:
    # Memory that is never touched costs nothing: the rows stand 3 GiB apart.
    apart = 3 * 2**30
    memory = torch.empty(apart + 64, dtype=torch.uint8)
    values = memory.as_strided((2, 2, *trailing), (apart, 8, 3, 1)[: 2 + len(trailing)])
    values.copy_(random_bits(tuple(values.shape), torch.uint8, seed=8))
    check(values, torch.tensor([[1, -1, 0], [0, 1, -1]]), 7)


@pytest.mark.parametrize(
    ("trailing", "dtype"),
    [((), torch.int64), ((3,), torch.int16), ((40,), torch.float64), ((2**12 + 8,), torch.uint8)],
    ids=str,
)
def test_the_whole_grid_writes_everything_once(trailing: tuple[int, ...], dtype: torch.dtype, whole: Simulator) -> None:
    index = torch.tensor([[3, -1, 0], [1, 2, 3]])
    values = random_bits((2, 4, *trailing), dtype, seed=9)
    check(values, index, 1)
    assert_same_bits(
        gather_slots(values, index, fill_words(1, dtype)), expected(values, index, 1).view(dtype).squeeze(-1)
    )
