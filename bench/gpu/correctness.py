"""Whether results are right on the device, in every way in which training calls them. Each part raises where they are not."""

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from alignpack import PackedSequenceLayout, packed_layout, warmup
from alignpack_fuzz.compare import FIELDS, assert_same_bits, assert_same_fields, named
from alignpack_fuzz.payloads import random_bits
from alignpack_fuzz.targets import REFERENCE
from bench import nccl_smoke
from bench.gpu.machine import Machine

Facts = dict[str, object]
TABLES = torch.tensor([[5, 0, 9, 1], [12, 2, 1, -1000]]), torch.tensor([[6, 0, 9, 3], [12, 4, 1, 0]])
SHAPE = (2, 20)


def on_each(part: Callable[[Machine], Facts]) -> Callable[[Machine], Facts]:
    """The part for each backend in turn."""

    @functools.wraps(part)
    def each(machine: Machine) -> Facts:
        facts: Facts = {}
        for name, target in machine.targets.items():
            with target.active(), named(name):
                facts[name] = part(machine)
        return facts

    return each


def laws(machine: Machine) -> Facts:
    """All laws of the fuzz harness, for both backends."""
    # They need Hypothesis, which the other parts do not.
    from alignpack_fuzz.checking import check
    from bench.gpu.on_device import DEVICE_LAWS, NOT_CARRIED, on_device

    facts: Facts = {"not carried to a device": list(NOT_CARRIED)}
    broken = []
    for name, target in machine.targets.items():
        seconds = (10 if machine.small else 30) / len(DEVICE_LAWS)
        examples = {}
        for law in DEVICE_LAWS:
            until = time.monotonic() + seconds
            run = check(
                law, on_device(target, machine.device), examples=3 if machine.small else 100, seed=0, until=until
            )
            examples[law.name] = run.examples
            if run.error is not None:
                broken.append(f"{name}: {law.name}: {run.error!r} for {run.case!r}")
        facts[name] = examples
    assert not broken, "\n".join(broken)
    return facts


Inputs = list[tuple[torch.Tensor, torch.Tensor]]
"""For `pack` and for `restore`, for each width."""


def _inputs(seed: int = 1) -> Inputs:
    """On the host: slots of several words, and of one, for which there is another kernel."""
    columns = REFERENCE.packed_layout(*TABLES, SHAPE, 4).source_indices.shape[1]
    return [
        (
            random_bits((*SHAPE, width), torch.float32, seed=seed).nan_to_num(),
            random_bits((SHAPE[0], columns, width), torch.float32, seed=seed + 1).nan_to_num(),
        )
        for width in (24, 1)
    ]


def _there(machine: Machine, inputs: Inputs) -> Inputs:
    return [(values.to(machine.device), packed.to(machine.device)) for values, packed in inputs]


def _everything(layout: PackedSequenceLayout, inputs: Inputs) -> list[torch.Tensor]:
    """Pack, restore, and both gradients, on the device, for each width."""
    results: list[torch.Tensor] = []
    for values, packed in inputs:
        leaf, packed_leaf = values.detach().requires_grad_(), packed.detach().requires_grad_()
        moved, restored = layout.pack(leaf, 7), layout.restore(packed_leaf)
        (back,) = torch.autograd.grad(moved, leaf, packed)
        (forth,) = torch.autograd.grad(restored, packed_leaf, values)
        results += [moved.detach(), restored.detach(), back, forth]
    return results


def _expected(inputs: Inputs) -> list[torch.Tensor]:
    layout = REFERENCE.packed_layout(*TABLES, SHAPE, 4)
    results: list[torch.Tensor] = []
    for values, packed in inputs:
        results += [
            layout.pack(values.cpu(), 7),
            layout.restore(packed.cpu()),
            REFERENCE.pack_gradient(layout, packed.cpu()),
            REFERENCE.restore_gradient(layout, values.cpu()),
        ]
    return results


def _assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    names = [f"{name}, {width}" for width in ("wide", "narrow") for name in ("pack", "restore", "pack's", "restore's")]
    for name, got, wanted in zip(names, actual, expected, strict=True):
        with named(name):
            assert_same_bits(got.cpu(), wanted)


@on_each
def side_streams(machine: Machine) -> Facts:
    """On a stream with work in front of it, the layout is built, values are made and moved, all on that stream."""
    for seed in (1, 3):  # not the same twice, or what memory held from the first time would be right
        host = _inputs(seed)
        pinned = [tuple(part.pin_memory() if machine.device.type == "cuda" else part for part in pair) for pair in host]
        with machine.side_stream():
            layout = packed_layout(*TABLES, SHAPE, 4, device=machine.device)
            inputs = [tuple(part.to(machine.device, non_blocking=True) for part in pair) for pair in pinned]
            results = _everything(layout, inputs)  # type: ignore[arg-type]
        machine.wait()
        _assert_same(results, _expected(host))
        for name in FIELDS:
            assert_same_bits(getattr(layout, name).cpu(), getattr(REFERENCE.packed_layout(*TABLES, SHAPE, 4), name))
    return {}


@on_each
def graphs(machine: Machine) -> Facts:
    """Captured, and replayed with other input in the same memory."""
    return _captured(machine, warm=True)


def graphs_after_warmup(machine: Machine) -> Facts:
    """The same for the kernels when nothing but `warmup` was called in this process before the capture."""
    if machine.kernels is None:
        return {"not run": "the kernels do not run, see versions"}
    with machine.kernels.active():
        warmup(machine.device)
        return _captured(machine, warm=False)


def _captured(machine: Machine, warm: bool) -> Facts:
    layout = packed_layout(*TABLES, SHAPE, 4, device=machine.device)
    inputs = _there(machine, _inputs())
    captured, replay = machine.captured(lambda: _everything(layout, inputs), warm)
    assert isinstance(captured, list)
    for seed in (3, 5):
        for places, pair in zip(inputs, _inputs(seed), strict=True):
            for place, part in zip(places, pair, strict=True):
                place.copy_(part)
        replay()
        machine.wait()
        _assert_same(captured, _expected(inputs))
    return {}


@on_each
def no_waiting(machine: Machine) -> Facts:
    """The host never waits: for a layout from host tables, for moves, for gradients."""
    inputs = _there(machine, _inputs())
    machine.wait()
    with machine.waiting_forbidden():
        layout = packed_layout(*TABLES, SHAPE, 4, device=machine.device)
        results = _everything(layout, inputs)
    _assert_same(results, _expected(inputs))
    from_device = packed_layout(TABLES[0].to(machine.device), TABLES[1].to(machine.device), SHAPE, 4)
    assert from_device.equal(layout)
    return {}


@on_each
def repeatable(machine: Machine) -> Facts:
    """In deterministic mode, and twice the same bits."""
    layout = packed_layout(*TABLES, SHAPE, 4, device=machine.device)
    inputs = _there(machine, _inputs())
    torch.use_deterministic_algorithms(True)
    try:
        runs = [_everything(layout, inputs) for _ in range(2)]
    finally:
        torch.use_deterministic_algorithms(False)
    for first, second in zip(*runs, strict=True):
        assert_same_bits(first, second)
    return {}


@on_each
def every_word(machine: Machine) -> Facts:
    """Both gathers with words of every size, and the layout's fill: what the sanitizer looks at."""
    layout = packed_layout(*TABLES, SHAPE, 4, device=machine.device)
    reference = REFERENCE.packed_layout(*TABLES, SHAPE, 4)
    for width in (1, 2, 4, 8, 16, 3, 6, 12, 24, 48):
        values = random_bits((*SHAPE, width), torch.uint8, seed=width)
        packed = layout.pack(values.to(machine.device), 7)
        assert_same_bits(packed.cpu(), reference.pack(values, 7))
        assert_same_bits(layout.restore(packed).cpu(), reference.restore(reference.pack(values, 7)))
    return {}


@on_each
def large_offsets(machine: Machine) -> Facts:
    """More than 2**31 elements in and out, in wide words and in single bytes, and more than 65535 rows."""
    slots, width = (64, 4) if machine.small else (2**20 + 64, 2048 + 16)
    elements = [_large(machine, slots, width), _large(machine, slots, width + 1)]
    rows = 40 if machine.small else 70000
    lengths = torch.arange(rows).remainder(3).unsqueeze(1) + 1
    many = packed_layout(lengths, None, (rows, 3), 2, device=machine.device)
    ids = torch.arange(rows * 3, device=machine.device).view(rows, 3)
    packed = many.pack(ids, -1)
    kept = torch.arange(3).unsqueeze(0) < lengths
    assert_same_bits(many.restore(packed).cpu(), torch.where(kept, ids.cpu(), 0))
    return {"elements": elements, "rows": rows}


def _large(machine: Machine, slots: int, width: int) -> int:
    values = torch.zeros(1, slots, width, dtype=torch.uint8, device=machine.device)
    marks = torch.arange(1, width + 1, device=machine.device).to(torch.uint8)
    values[0, -1] = marks
    layout = packed_layout(torch.tensor([[3, slots - 3]]), None, (1, slots), 4, device=machine.device)
    packed = layout.pack(values, 9)
    assert_same_bits(packed[0, int(layout.input_positions[0, -1])], marks)
    assert_same_bits(packed[0, 3], torch.full_like(marks, 9))
    assert_same_bits(layout.restore(packed)[0, -1], marks)
    return packed.numel()


@on_each
def big_layouts(machine: Machine) -> Facts:
    """Layouts with many documents are those of the host."""
    rows, slots, documents = (2, 64, 8) if machine.small else (16, 65536, 2000)
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(0, slots // documents + 1, (rows, documents), generator=generator)
    for alignment in (1, 4, 128):
        there = packed_layout(lengths, None, (rows, slots), alignment, device=machine.device)
        here = packed_layout(lengths, None, (rows, slots), alignment, backend="torch")
        assert_same_fields(there.to("cpu"), here)
    return {}


def sanitizer(machine: Machine) -> Facts:
    """The part with every kernel again under compute-sanitizer, where that is installed."""
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None or machine.small:
        return {"compute-sanitizer": "not run: " + ("it is not installed" if program is None else "a rehearsal")}
    script = str(Path(__file__).parents[1] / "gpu_check.py")
    command = [program, "--error-exitcode", "7", sys.executable, script, "--part", "every_word"]
    # PyTorch's cache hands out parts of large blocks, behind which the sanitizer would see nothing wrong.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    run = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return {"compute-sanitizer": "clean"}


def nccl(machine: Machine) -> Facts:
    """The collectives of context parallelism with one rank: NCCL takes what it is given."""
    return {"dtypes": nccl_smoke.smoke(*(("gloo", "cpu") if machine.small else ("nccl", str(machine.device))))}


PARTS = (
    graphs_after_warmup,
    side_streams,
    graphs,
    no_waiting,
    repeatable,
    every_word,
    large_offsets,
    big_layouts,
    nccl,
    laws,
)
