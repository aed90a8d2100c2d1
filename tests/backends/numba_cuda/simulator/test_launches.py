"""What the launch layer is told: kernel, device, grid, block, arguments in their order, and how often."""

import itertools

import numpy as np
import pytest
import torch
from numba.types import int64

import alignpack
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._backends.numba_cuda import launch as launching
from alignpack._backends.numba_cuda.kernels import KERNELS
from alignpack._backends.numba_cuda.shapes import THREADS, gather_shape, layout_shape
from alignpack._backends.numba_cuda.words import INT64
from alignpack._inputs.tables import read_tables
from alignpack_fuzz.simulator import Launch, Pointer, SimulatedTarget, Simulator

CPU = torch.device("cpu")


def launches() -> list[Launch]:
    launcher = launching.launcher()
    assert isinstance(launcher, Simulator)
    return launcher.launches


def test_one_launch_for_each_thing(simulated: SimulatedTarget) -> None:
    before = len(launches())
    layout = alignpack.packed_layout(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4)
    assert [launch.kernel.name for launch in launches()[before:]] == ["write_layout"]
    values = torch.arange(64.0).view(1, 8, 8).requires_grad_()

    before = len(launches())
    packed = layout.pack(values)
    (launch,) = launches()[before:]
    assert (launch.kernel.name, launch.device) == ("gather_wide_16", CPU)
    assert (launch.grid, launch.block) == ((1, 1), (2, 8)) == gather_shape(1, 8, 2, 16)
    assert launch.arguments == (
        values.data_ptr(), layout.source_indices.data_ptr(), packed.data_ptr(),
        0, 0,  # the fill
        1, 8, 8,  # batch, columns, slots
        0, 2,  # strides
        2,  # width
    )  # fmt: skip

    before = len(launches())
    packed.sum().backward()
    (launch,) = launches()[before:]
    assert launch.kernel.name == "gather_wide_16"
    assert launch.arguments[1] == layout.input_positions.data_ptr()

    before = len(launches())
    restored = layout.restore(packed.detach())
    (launch,) = launches()[before:]
    assert launch.arguments[1:3] == (layout.input_positions.data_ptr(), restored.data_ptr())


def test_a_layout_is_told_its_tables(simulator: Simulator) -> None:
    with pytest.MonkeyPatch.context() as patch:
        sent: list[torch.Tensor] = []
        patch.setattr(simulator, "run", lambda launch: sent.append(read(launch.arguments[0], 6)))
        fields = numba_cuda.build_fields(
            read_tables(torch.tensor([[3, 2]]), torch.tensor([[4, 4]]), (1, 8), 4, 0, 32), CPU
        )
    (launch,) = simulator.launches
    source_indices, input_positions, position_ids, sequence_ids = fields
    assert sent[0].tolist() == [3, 2, 0, 4, 0, 4]  # lengths, starts in the input row, starts in the packed row
    assert launch.arguments[1:] == (
        source_indices.data_ptr(), input_positions.data_ptr(), position_ids.data_ptr(), sequence_ids.data_ptr(),
        1, 2, 32, 8,  # batch, documents, columns, slots
    )  # fmt: skip
    assert (launch.grid, launch.block) == ((1, 1), (THREADS, 1)) == layout_shape(1, 32)


def test_tables_cross_without_waiting(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """From page-locked memory to the device that is current, in host tensors' place here."""
    gpu, empty = torch.device("cuda", 3), torch.empty
    made, sent = [], []

    def on_host(*shape: int, dtype: torch.dtype, device: torch.device | str, pin_memory: bool = False) -> torch.Tensor:
        made.append((torch.device(device), pin_memory))
        return empty(*shape, dtype=dtype)

    def to(tensor: torch.Tensor, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        sent.append((device, non_blocking))
        return tensor

    tables = read_tables(torch.tensor([[3, 2]]), None, (1, 8), 4, 0, 32)
    monkeypatch.setattr(torch, "empty", on_host)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    numba_cuda.build_fields(tables, torch.device("cuda"))
    assert [launch.device for launch in simulator.launches] == [gpu]
    assert made == [*[(gpu, False)] * 4, (CPU, True)]
    assert sent == [(gpu, True)]


def read(address: int, count: int) -> torch.Tensor:
    pointer = Pointer(address, 8, count)
    return torch.tensor([pointer.load(offset) for offset in range(count)])


def test_a_narrow_launch(simulator: Simulator) -> None:
    values = torch.arange(3 * 10, dtype=torch.int32).view(3, 10)[:, ::2]
    index = torch.zeros(3, 4, dtype=torch.int64)
    out = numba_cuda.gather_slots(values, index, (-100,))
    (launch,) = simulator.launches
    assert (launch.kernel.name, launch.device) == ("gather_narrow_4", CPU)
    twice = (-100 & 0xFFFFFFFF) * (1 + 2**32) - 2**64  # as a signed integer
    assert launch.arguments == (
        values.data_ptr(), index.data_ptr(), out.data_ptr(), twice, twice, 3, 4, 5, 10, 2
    )  # fmt: skip


def test_a_map_that_is_not_aligned_is_copied(simulator: Simulator) -> None:
    """As memory from elsewhere may be, over DLPack: a kernel's loads of eight bytes would fail."""
    memory = np.arange(33, dtype=np.uint8)
    memory[1:] = np.array([2, 0, -1, 1]).view(np.uint8)
    index = torch.from_numpy(memory[1:].view(np.int64)).view(1, 4)
    assert index.data_ptr() % 8 == 1
    out = numba_cuda.gather_slots(torch.tensor([[10, 11, 12]]), index, (7,))
    assert out.tolist() == [[12, 10, 7, 11]]
    (launch,) = simulator.launches
    assert launch.arguments[1] % 8 == 0


def test_arguments_fit_their_parameters() -> None:
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS) == 11
    for kernel in KERNELS:
        names = kernel.function.__code__.co_varnames[: kernel.function.__code__.co_argcount]
        assert len(names) == len(kernel.parameters)
        for name, parameter in zip(names, kernel.parameters, strict=True):
            is_pointer = name in ("source", "out", "index", "tables", "source_indices", "input_positions")
            is_pointer |= name in ("position_ids", "sequence_ids")
            assert is_pointer == (parameter is not int64), f"{kernel.name}: {name}"
            if name == "index":
                assert parameter == INT64


@pytest.mark.parametrize("width", [1, 2, 3, 7, 32, 33, 128, 1024, 10**6])
@pytest.mark.parametrize("word", [1, 2, 4, 8, 16])
def test_shapes_are_legal_and_cover_a_row(width: int, word: int) -> None:
    for batch, columns in itertools.product((1, 8, 65535, 65536, 10**6), (1, 3, 64, 8192, 2**31 - 1)):
        _check_shape(batch, columns, width, word)


def _check_shape(batch: int, columns: int, width: int, word: int) -> None:
    (x, y), (lanes, together) = gather_shape(batch, columns, width, word)
    assert 1 <= x < 2**31
    assert y == min(batch, 65535)
    assert 1 <= lanes * together <= THREADS
    covered = x * lanes * 4 if width == 1 else x * together
    assert columns <= covered < columns + (4 * lanes if width == 1 else together)  # one turn, and no block too many
    if width > 1:
        assert lanes * 4 >= min(width, 4 * THREADS)


@pytest.mark.parametrize("batch", [1, 65535, 65536, 10**6])
@pytest.mark.parametrize("columns", [1, THREADS, THREADS + 1, 2**31 - 1])
def test_shapes_of_fills_are_legal_and_cover_a_row(batch: int, columns: int) -> None:
    (x, y), block = layout_shape(batch, columns)
    assert (y, block) == (min(batch, 65535), (THREADS, 1))
    assert columns <= x * THREADS < columns + THREADS


def test_every_kernel_is_warmed_up(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(simulator, "load", lambda kernel, device: loaded.append((kernel, device)))
    numba_cuda.warmup(CPU)
    assert loaded == [(kernel, CPU) for kernel in KERNELS]
    # Drivers load code onto a device at its first launch there, which must not happen during a capture.
    assert [launch.kernel for launch in simulator.launches] == list(KERNELS)
    assert not any(any(launch.arguments) for launch in simulator.launches)


def test_a_device_without_a_number_is_the_current_one(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: set[object] = set()
    monkeypatch.setattr(simulator, "load", lambda _, device: loaded.add(device))
    monkeypatch.setattr(simulator, "launch", lambda _, device, *_arguments: loaded.add(device))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    numba_cuda.warmup(torch.device("cuda"))
    assert loaded == {torch.device("cuda", 3)}
