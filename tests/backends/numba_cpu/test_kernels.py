"""The numba backend on the CPU, where the laws do not reach: long rows, threads, maps made by hand, processes.

The kernels themselves take addresses and cannot run as plain Python, so coverage does not see their lines; these tests
and the laws are what shows that they are right.
"""

import contextlib
import dataclasses
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from alignpack import PackedSequenceLayout, packed_layout
from alignpack._backends.numba_cpu import backend as numba_cpu
from alignpack._backends.numba_cpu import threads
from alignpack._inputs.tables import LengthTables
from alignpack_fuzz.compare import assert_same_bits

DTYPES = (torch.bool, torch.int8, torch.bfloat16, torch.float32, torch.int64, torch.complex64, torch.complex128)
TRAILING = ((), (3,), (2, 8), (40,))


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every output is written by three threads; what was submitted is counted."""
    submitted: list[int] = []
    with ThreadPoolExecutor(2) as pool:

        def get_pool() -> ThreadPoolExecutor:
            submitted.append(1)
            return pool

        monkeypatch.setattr(threads, "PARALLEL_BYTES", 0)
        monkeypatch.setattr(threads, "_get_pool", get_pool)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        yield submitted


@pytest.fixture
def poisoned() -> Iterator[None]:
    """New memory is not zero by chance."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def long_tables() -> tuple[torch.Tensor, torch.Tensor, tuple[int, int]]:
    """Rows of documents of 0 to 40 tokens, some absent, with slack behind them and a tail."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(-3, 41, (5, 30), generator=generator).clamp_min(0)
    spans = lengths + (lengths > 0) * torch.randint(-4, 5, (5, 30), generator=generator).clamp_min(0)
    lengths[:, 7] = spans[:, 7] = -1000
    lengths[3] = spans[3] = 0
    return lengths, spans, (5, int(spans.clamp_min(0).sum(1).max()) + 3)


def strided(dtype: torch.dtype, trailing: tuple[int, ...], strides: str, shape: tuple[int, int]) -> torch.Tensor:
    def draw(*sizes: int) -> torch.Tensor:
        count = torch.Size(sizes).numel()
        numbers = torch.randint(
            0, 2 if dtype == torch.bool else 100, (count,), generator=torch.Generator().manual_seed(1)
        )
        return numbers.to(dtype).view(sizes)

    match strides:
        case "slots first":
            return draw(shape[1], shape[0], *trailing).transpose(0, 1)
        case "every second slot":
            return draw(shape[0], 2 * shape[1], *trailing)[:, ::2]
        case "one row":
            return draw(1, shape[1], *trailing).expand(*shape, *trailing)
        case "trailing axes reversed":
            values = draw(*shape, *reversed(trailing))
            return values.permute(0, 1, *reversed(range(2, values.ndim)))
        case "every second element":
            return draw(*shape, *trailing, 2)[..., 1]
        case _:
            return draw(*shape, *trailing)


STRIDES = ["dense", "slots first", "every second slot", "one row", "trailing axes reversed", "every second element"]


@pytest.mark.parametrize("spans", [True, False])
@pytest.mark.parametrize("alignment", [1, 4, 7, 999])
@pytest.mark.usefixtures("poisoned")
def test_long_rows_are_laid_out(alignment: int, spans: bool) -> None:
    lengths, padded, shape = long_tables()
    tables = (lengths, padded if spans else None, shape, alignment, 1500)
    assert packed_layout(*tables, backend="numba").equal(packed_layout(*tables, backend="torch"))


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.usefixtures("poisoned")
def test_long_rows_are_moved(strides: str) -> None:
    lengths, padded, shape = long_tables()
    layout = packed_layout(lengths, padded, shape, 4)
    for dtype in DTYPES:
        for trailing in TRAILING:
            values = strided(dtype, trailing, strides, shape)
            fill = 2 - 3j if dtype.is_complex else 1
            packed = layout.pack(values, fill, backend="numba")
            assert_same_bits(packed, layout.pack(values, fill, backend="torch"))
            assert packed.is_contiguous()
            assert_same_bits(layout.restore(packed, backend="numba"), layout.restore(packed, backend="torch"))
            shard = layout[1:4].shard(0, 1)
            assert_same_bits(shard.pack(values[1:4], fill, backend="numba"), packed[1:4])


@pytest.mark.usefixtures("poisoned")
def test_threads_write_what_one_thread_writes(three_threads: list[int]) -> None:
    lengths, padded, shape = long_tables()
    layout = packed_layout(lengths, padded, shape, 4, backend="numba")
    assert layout.equal(packed_layout(lengths, padded, shape, 4, backend="torch"))
    built = len(three_threads)
    assert built > 0
    for trailing in TRAILING:
        values = strided(torch.int16, trailing, "dense", shape)
        assert_same_bits(layout.pack(values, 5, backend="numba"), layout.pack(values, 5, backend="torch"))
    assert len(three_threads) == built + len(TRAILING)


@pytest.mark.parametrize("fill", [2j, 2.0, complex(-0.0, 2), complex(2, -0.0), complex(0.0, -0.0)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_fills_whose_parts_are_different_words(dtype: torch.dtype, fill: complex) -> None:
    layout = packed_layout(torch.tensor([[1, 2]]), None, (1, 3), 4)
    for trailing in TRAILING:
        packed = layout.pack(strided(dtype, trailing, "dense", (1, 3)), fill, backend="numba")
        assert_same_bits(packed[0, 1], torch.full(trailing, fill, dtype=dtype))
        assert_same_bits(packed[0, 7], torch.full(trailing, fill, dtype=dtype))


def by_hand(index: list[list[int]], slots: int) -> PackedSequenceLayout:
    map_ = torch.tensor(index)
    return PackedSequenceLayout(map_, torch.full((len(index), slots), -1), map_, map_)


@pytest.mark.parametrize("wrong", [-(2**63), -2, 12, 2**62, 2**63 - 1])
@pytest.mark.parametrize("strides", ["dense", "slots first"])
def test_a_map_made_by_hand_cannot_lead_out_of_its_row(wrong: int, strides: str) -> None:
    layout = by_hand([[0, -1, 2, 3], [1, 2, wrong, wrong]], 12)
    with pytest.raises(IndexError) as caught:
        layout.pack(strided(torch.int64, (), strides, (2, 12)), backend="numba")
    assert str(caught.value) == (f"the layout's map holds {wrong} at row 1, column 2; it must be -1 or below 12")


def test_a_run_ends_with_its_row() -> None:
    columns = list(range(4, 24))
    with pytest.raises(IndexError, match="holds 12 at row 0, column 8;"):
        by_hand([columns], 12).pack(torch.arange(12).unsqueeze(0), backend="numba")
    twice = by_hand([[*range(12), *range(12)], [3, 2, 1, *range(7, 12), *[0] * 16]], 12)
    values = torch.arange(24).view(2, 12)
    assert_same_bits(twice.pack(values, backend="numba"), values.gather(1, twice.source_indices))


@pytest.mark.parametrize("lengths", [range(1, 50), range(50, 100), range(100, 150)], ids=str)
def test_runs_of_every_length_end_with_their_rows_and_with_the_values(lengths: range) -> None:
    """Runs are looked for in blocks of two sizes: none may reach beyond."""
    for length in lengths:
        values = torch.arange(4 * length).view(2, 2 * length)
        index = torch.arange(2 * length).view(2, length)  # goes on in the next row
        layout = by_hand(index.tolist(), 2 * length)
        assert_same_bits(layout.pack(values, backend="numba"), values.gather(1, index))
        beyond = by_hand([list(range(length + 100))], length)  # goes on behind the values
        with pytest.raises(IndexError, match=f"holds {length} at row 0, column {length};"):
            beyond.pack(values[:1, :length].contiguous(), backend="numba")


def test_a_run_ends_wherever_it_is_broken() -> None:
    index = torch.arange(200).repeat(199, 1)
    index[torch.arange(199), torch.arange(1, 200)] = 0
    values = torch.arange(199 * 200).view(199, 200)
    assert_same_bits(by_hand(index.tolist(), 200).pack(values, backend="numba"), values.gather(1, index))


def test_maps_that_no_layout_has_are_left_to_pytorch() -> None:
    values = torch.arange(8).view(2, 4)
    layout = packed_layout(torch.tensor([[3], [2]]), None, (2, 4), 4)
    narrow = dataclasses.replace(layout, source_indices=layout.source_indices.int())
    assert_same_bits(narrow.pack(values, backend="numba"), layout.pack(values))
    with pytest.raises((RuntimeError, IndexError)):
        dataclasses.replace(layout, source_indices=torch.zeros(3, 4, dtype=torch.int64)).pack(values, backend="numba")


def test_a_map_of_any_strides() -> None:
    layout = packed_layout(torch.tensor([[3], [2]]), None, (2, 4), 4)
    turned = dataclasses.replace(layout, source_indices=layout.source_indices.T.contiguous().T)
    values = torch.arange(8).view(2, 4)
    assert not turned.source_indices.is_contiguous()
    assert_same_bits(turned.pack(values, backend="numba"), layout.pack(values, backend="torch"))


def test_views_that_only_say_what_they_hold_are_resolved() -> None:
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
    values = torch.tensor([[1 + 2j, 3 + 4j, 5 + 6j]])
    assert layout.pack(values.conj(), backend="numba").tolist() == [[1 - 2j, 3 - 4j, 5 - 6j, 0]]
    assert layout.pack(values.conj().imag, backend="numba").tolist() == [[-2, -4, -6, 0]]


def test_a_result_may_be_changed_in_place() -> None:
    values = torch.ones(1, 3, requires_grad=True)
    layout = packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
    layout.pack(values, backend="numba").mul_(2).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[2, 2, 2]]


def test_a_stride_that_is_never_walked_may_be_any_number() -> None:
    layout = packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4)
    values = torch.arange(16).as_strided((1, 8), (2**62, 2))
    assert layout.pack(values, backend="numba").tolist() == [[0, 2, 4, 0, 6, 8, 10, 12, 14, 0, 0, 0]]


def test_many_threads_share_a_layout() -> None:
    lengths, padded, shape = long_tables()
    layout = packed_layout(lengths, padded, shape, 4)
    values = [strided(dtype, (40,), "dense", shape) for dtype in DTYPES] * 8
    expected = [layout.pack(each, backend="torch") for each in values]
    with ThreadPoolExecutor(8) as pool:
        for packed, right in zip(
            pool.map(lambda each: layout.pack(each, backend="numba"), values), expected, strict=True
        ):
            assert_same_bits(packed, right)


@pytest.mark.slow
def test_a_forked_process_starts_its_own_threads() -> None:
    program = """
import multiprocessing, warnings, torch, alignpack
from alignpack._backends.numba_cpu import threads
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads: that is the case to be shown
threads.PARALLEL_BYTES = 0
torch.set_num_threads(2)
values = torch.arange(64).view(2, 32)
def work():
    layout = alignpack.packed_layout(torch.tensor([[5, 9], [32, 0]]), None, (2, 32), 4, backend="numba")
    return layout.pack(values, backend="numba").sum().item() - layout.pack(values, backend="torch").sum().item()
def child():
    assert threads._pool is None
    assert work() == 0
    assert threads._pool is not None
assert work() == 0
assert threads._pool is not None
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(60)
raise SystemExit(process.exitcode)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_pool_that_takes_no_work_any_more(three_threads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def submit(self, *_: object) -> None:
            raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(threads, "_get_pool", Closed)
    lengths, padded, shape = long_tables()
    layout = packed_layout(lengths, padded, shape, 4, backend="numba")
    assert layout.equal(packed_layout(lengths, padded, shape, 4, backend="torch"))
    assert three_threads == []


@pytest.mark.usefixtures("three_threads")
def test_a_part_holds_the_memory_that_it_writes_when_its_caller_is_gone() -> None:
    class Memory:
        pass

    memory = Memory()
    alive, interrupted, looked = weakref.ref(memory), threading.Event(), threading.Event()
    found: list[bool] = []

    def kernel(first: int, _last: int) -> int:
        if first == 0:
            raise KeyboardInterrupt
        interrupted.wait(10)
        gc.collect()
        found.append(alive() is not None)
        looked.set()
        return -1

    with contextlib.suppress(KeyboardInterrupt):
        threads.run_in_threads(1, 2, kernel, (), memory)
    del memory
    interrupted.set()  # only now: the error that was suppressed held the frames that hold the memory
    assert looked.wait(10)
    assert found == [True]


def test_callers_hand_over_all_memory_that_kernels_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    def tensors(memory: object) -> Iterator[torch.Tensor]:
        if isinstance(memory, torch.Tensor):
            yield memory
        elif isinstance(memory, LengthTables):
            yield from tensors((memory.lengths, memory.spans))
        elif isinstance(memory, tuple):
            for part in memory:
                yield from tensors(part)

    calls = 0

    def checking(_bytes: int, count: int, kernel: Any, arguments: tuple[int, ...], memory: object) -> Any:
        nonlocal calls
        calls += 1
        addresses = {argument for argument in arguments if argument > 2**32}  # no size here is so large
        assert addresses == {tensor.data_ptr() for tensor in tensors(memory)}
        return [kernel(*arguments, 0, count)]

    monkeypatch.setattr(numba_cpu, "run_in_threads", checking)
    lengths, padded, shape = long_tables()
    layout = packed_layout(lengths, padded, shape, 4, backend="numba")
    layout.pack(torch.ones(shape), backend="numba")
    layout.pack(torch.ones(*shape, 4).transpose(2, 0).contiguous().transpose(2, 0), backend="numba")
    layout.shift(1)
    layout.groups(2)
    assert calls == 5


def test_the_first_wrong_entry_of_all_parts_is_named(three_threads: list[int]) -> None:
    index = torch.arange(30).view(3, 10).remainder(10)
    index[0, 9] = index[2, 3] = 77
    layout = by_hand(index.tolist(), 10)
    with pytest.raises(IndexError, match="holds 77 at row 0, column 9;"):
        layout.pack(torch.zeros(3, 10, 300), backend="numba")
    assert three_threads
