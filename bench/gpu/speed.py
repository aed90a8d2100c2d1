"""How fast the device is used: shares of the bandwidth of a plain copy in the same run, ratios to what people write today.

Results are compared before anything is timed. Inputs are rotated, so that no cache holds them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from alignpack import PackedSequenceLayout, packed_layout
from alignpack._backends.numba_cuda import shapes
from bench.baselines import ComposedIndices, composed_pack, loop_layout
from bench.gpu.machine import Call, Machine
from bench.measure import burst_times
from bench.workloads import Sizes

Facts = dict[str, Any]

MOVES = {
    "2048-byte slots": Sizes(8, 8192, 16, (1024,), torch.bfloat16),
    "512-byte slots": Sizes(16, 16384, 32, (256,), torch.bfloat16),
    "16-KiB slots": Sizes(2, 4096, 8, (8192,), torch.bfloat16),
    "ids": Sizes(64, 131072, 1024),
}
LAYOUTS = {"8 x 8192, 64 documents": Sizes(8, 8192, 64), "64 x 131072, 1024 documents": Sizes(64, 131072, 1024)}
COPIES = 3
"""Inputs that take turns; together they are several times the largest cache."""


def moves(machine: Machine) -> Facts:
    """`pack`, `restore` and both gradients."""
    rounds = 2 if machine.small else 15
    facts: Facts = {}
    for case, sizes in MOVES.items():
        sizes = sizes.small() if machine.small else sizes
        values = [sizes.values().to(machine.device) for _ in range(COPIES)]
        bandwidth = copy_bandwidth(machine, values, rounds)
        facts[case] = {"copy, bytes/s": bandwidth}
        for name, target in machine.targets.items():
            with target.active():
                facts[case][name] = _moves(machine, sizes, values, bandwidth, rounds)
        print(case, facts[case], flush=True)  # what is known when a later case fails
    return facts


def copy_bandwidth(machine: Machine, values: list[torch.Tensor], rounds: int) -> float:
    """Bytes read and written in a second."""
    into = torch.empty_like(values[0])
    return 2 * into.nbytes / machine.seconds([_calling(into.copy_, part) for part in values], rounds)


def _calling(function: Callable[..., object], *arguments: object) -> Call:
    return lambda: function(*arguments)


def _moves(machine: Machine, sizes: Sizes, values: list[torch.Tensor], bandwidth: float, rounds: int) -> Facts:
    layout = packed_layout(*sizes.tables(), values[0].shape[:2], sizes.alignment, device=machine.device)
    indices, inverse = ComposedIndices.of(layout.source_indices), ComposedIndices.of(layout.input_positions)
    packed = [layout.pack(part) for part in values]
    assert torch.equal(packed[0], composed_pack(values[0], indices)), "pack is not what the composed form gives"
    assert torch.equal(layout.restore(packed[0]), composed_pack(packed[0], inverse)), "nor is restore"
    slot = values[0].nbytes // values[0].shape[:2].numel()
    real = int((layout.source_indices >= 0).sum()) * slot
    forward_bytes = real + layout.source_indices.nbytes + packed[0].nbytes
    back_bytes = real + layout.input_positions.nbytes + values[0].nbytes
    spans, lengths = sizes.tables()[1].tolist(), sizes.tables()[0].tolist()

    facts: Facts = {}

    def add(name: str, calls: list[Call], moved: int, baselines: dict[str, Call]) -> None:
        seconds = machine.seconds(calls, rounds)
        others = {other: machine.seconds([call], 3) / seconds for other, call in baselines.items()}
        facts[name] = {"seconds": seconds, "share of copy": moved / seconds / bandwidth, "times faster than": others}

    loop = _calling(_loop_pack, values[0], layout, lengths, spans)
    composed: dict[str, Call] = {"composed": _calling(composed_pack, values[0], indices)}
    add("pack", [_calling(layout.pack, part) for part in values], forward_bytes, {**composed, "loop": loop})
    add(
        "restore",
        [_calling(layout.restore, part) for part in packed],
        back_bytes,
        {"composed": _calling(composed_pack, packed[0], inverse)},
    )
    facts["memory of pack, times its result"] = machine.most_bytes(_calling(layout.pack, values[0])) / packed[0].nbytes
    batch = {"values": values[0], "more": values[1]}
    add("pack_batch of two", [_calling(layout.pack_batch, batch)], 2 * forward_bytes, {})
    if not sizes.dtype.is_floating_point:
        return facts
    leaf = values[0].detach().requires_grad_()
    add(
        "backward of pack",
        [_backward(layout.pack(leaf), leaf, part) for part in packed],
        back_bytes,
        {"composed": _backward(composed_pack(leaf, indices), leaf, packed[0])},
    )
    packed_leaf = packed[0].detach().requires_grad_()
    moved = layout.restore(packed_leaf)
    add(
        "backward of restore",
        [_backward(moved, packed_leaf, part) for part in values],
        forward_bytes,
        {"composed": _backward(composed_pack(packed_leaf, inverse), packed_leaf, values[0])},
    )
    return facts


def _backward(moved: torch.Tensor, leaf: torch.Tensor, upstream: torch.Tensor) -> Call:
    return lambda: torch.autograd.grad(moved, leaf, upstream, retain_graph=True)


def _loop_pack(
    values: torch.Tensor, layout: PackedSequenceLayout, lengths: list[list[int]], spans: list[list[int]]
) -> torch.Tensor:
    """Document by document."""
    out = values.new_zeros(*layout.source_indices.shape, *values.shape[2:])
    for row, (row_lengths, row_spans) in enumerate(zip(lengths, spans, strict=True)):
        start = packed_start = 0
        for length, span in zip(row_lengths, row_spans, strict=True):
            out[row, packed_start : packed_start + length] = values[row, start : start + length]
            start += span
            packed_start += -(-length // layout.alignment) * layout.alignment
    return out


def layouts(machine: Machine) -> Facts:
    """Building a layout from host tables, and from tables on the device."""
    facts: Facts = {}
    for case, sizes in LAYOUTS.items():
        sizes = sizes.small() if machine.small else sizes
        tables = sizes.tables()
        shape = (sizes.batch, sizes.sequence)
        big = [torch.empty(2**10 if machine.small else 2**25, dtype=torch.int64, device=machine.device)]
        bandwidth = copy_bandwidth(machine, big, 3)
        facts[case] = {}
        for name, target in machine.targets.items():
            with target.active():
                facts[case][name] = _layout(machine, tables, shape, sizes.alignment, bandwidth)
        facts[case]["loop, wall seconds"] = burst_times(
            {"loop": _calling(loop_layout, *tables, shape, sizes.alignment)},
            rounds=1,
            seconds=0.001,
        )["loop"].median
    return facts


def _layout(
    machine: Machine,
    tables: tuple[torch.Tensor, torch.Tensor],
    shape: tuple[int, int],
    alignment: int,
    bandwidth: float,
) -> Facts:
    def build() -> PackedSequenceLayout:
        return packed_layout(*tables, shape, alignment, device=machine.device)

    def built_and_there() -> None:
        build()
        machine.wait()

    layout = build()
    for field, expected in zip(
        (layout.source_indices, layout.input_positions), loop_layout(*tables, shape, alignment), strict=False
    ):
        assert torch.equal(field.cpu(), expected), "the layout is not what the loop gives"
    written = 3 * layout.source_indices.nbytes + layout.input_positions.nbytes
    seconds = machine.seconds([build], 3)
    return {
        "seconds": seconds,
        "share of copy": written / seconds / bandwidth,
        "wall seconds": burst_times({"it": built_and_there}, rounds=3)["it"].median,
        "host seconds": burst_times({"it": build}, rounds=3)["it"].median,
    }


def host_cost(machine: Machine) -> Facts:
    """The host's time for a call on [1, 64, 8], as multiples of that for `x.add(1)`."""
    facts: Facts = {}
    lengths = torch.tensor([[40, 24]])
    for name, target in machine.targets.items():
        with target.active():
            layout = packed_layout(lengths, None, (1, 64), 4, device=machine.device)
            plain = torch.zeros(1, 64, 8, device=machine.device)
            leaf = plain.clone().requires_grad_()
            times = burst_times(
                {
                    "add": _calling(plain.add, 1),
                    "without gradients": _calling(layout.pack, plain),
                    "with gradients": _calling(layout.pack, leaf),
                },
                rounds=3 if machine.small else 15,
            )
        add = times.pop("add").median
        facts[name] = {"add, seconds": add, **{case: timing.median / add for case, timing in times.items()}}
    return facts


VARIANTS: dict[str, dict[str, int]] = {
    "as it is": {},
    **{f"{blocks} blocks at once": {"BLOCKS_AT_ONCE": blocks} for blocks in (1, 2, 6, 8)},
    **{f"{words} words a thread": {"IN_FLIGHT": words} for words in (1, 2, 8)},
    "blocks of 128": {"THREADS": 128},
    "blocks of 512": {"THREADS": 512, "BLOCKS_AT_ONCE": 2},
}
"""What might be faster: registers a thread (blocks at once), words for each thread, threads of a block."""


def tuning(machine: Machine) -> Facts:
    """Shares of the copy's bandwidth with other launch bounds and shapes."""
    facts: Facts = {}
    kernels = machine.kernels
    if kernels is None:
        return {"not run": "the kernels do not run, see versions"}
    with kernels.active():
        for case in ("2048-byte slots", "512-byte slots", "ids"):
            sizes = MOVES[case].small() if machine.small else MOVES[case]
            values = [sizes.values().to(machine.device) for _ in range(COPIES)]
            bandwidth = copy_bandwidth(machine, values, 3)
            layout = packed_layout(*sizes.tables(), values[0].shape[:2], sizes.alignment, device=machine.device)
            real = int((layout.source_indices >= 0).sum()) * (values[0].nbytes // values[0].shape[:2].numel())
            right = layout.pack(values[0])
            moved = real + layout.source_indices.nbytes + right.nbytes
            facts[case] = {}
            for variant, changes in VARIANTS.items():
                with changed(machine, changes):
                    assert torch.equal(layout.pack(values[0]), right), variant
                    seconds = machine.seconds(
                        [_calling(layout.pack, part) for part in values], 2 if machine.small else 7
                    )
                facts[case][variant] = moved / seconds / bandwidth
                print(case, variant, facts[case][variant], flush=True)  # what is known when a later variant fails
    return facts


@contextmanager
def changed(machine: Machine, changes: dict[str, int]) -> Iterator[None]:
    """Kernels are compiled and launched with other constants inside."""
    from alignpack._backends.numba_cuda import launch as launching  # which imports Numba's CUDA target

    launcher = launching.launcher() if machine.small else launching.CudaLauncher()
    # The launch layer has its own name for the threads of a block, which it tells the compiler.
    with (
        mock.patch.dict(vars(shapes), changes),
        mock.patch.dict(vars(launching), changes),
        launching.launching_with(launcher),
    ):
        yield


PARTS = (moves, layouts, host_cost, tuning)
