"""Context parallelism on one process: the one code path, what `shard_batch` refuses, and what it does not allocate."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

from alignpack import LayoutError, packed_layout
from alignpack._distributed.collectives import Ranks
from alignpack._inputs.words import WORD_DTYPES
from alignpack.context_parallel import agree_on_length, gather_sequence, halo, packed_length, shard_batch
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.payloads import random_bits
from tests.paths import ROOT
from tests.torch_version import PROFILER_WARNS

TABLES = torch.tensor([[3, 5]]), None, (1, 8), 4


@pytest.mark.parametrize("lengths", [[3, 5], [0, -1000], [8, 0], [1, 1]])
@pytest.mark.parametrize("options", [{}, {"minimum_length": 13}, {"length_multiple": 24}, {"minimum_length": 50}])
def test_packed_length_is_that_of_the_layout(lengths: list[int], options: dict[str, Any]) -> None:
    tables = torch.tensor([lengths]), None, (1, 8), 4
    assert packed_length(*tables, **options) == packed_layout(*tables, **options).source_indices.shape[1]


def test_packed_length_refuses_what_a_layout_refuses() -> None:
    with pytest.raises(LayoutError, match="row 0, document 1") as caught:
        packed_length(torch.tensor([[3, 6]]), None, (1, 8), 4)
    assert (caught.value.row, caught.value.document) == (0, 1)
    with pytest.raises(ValueError, match="alignment must be at least 1, got 0"):
        packed_length(torch.tensor([[3]]), None, (1, 8), 0)


def test_packed_length_is_out_of_sight_like_a_layout() -> None:
    """Tables are numbers, whatever is traced or transformed around the call."""
    lengths = torch.tensor([[3, 5]])
    found: list[int] = []

    def step(tensor: torch.Tensor) -> torch.Tensor:
        found.append(packed_length(lengths, None, (1, 8), 4))
        return tensor.sum()

    torch.func.grad(step)(torch.ones(2))
    torch.func.vmap(step)(torch.ones(2, 2))
    with FakeTensorMode():
        step(torch.ones(2))
    assert found == [12] * 3


@PROFILER_WARNS
def test_packed_length_builds_nothing() -> None:
    lengths = torch.tensor([[2**30, 2**30 - 5]])
    with torch.profiler.profile(profile_memory=True) as run:
        assert packed_length(lengths, None, (1, 2**31 - 1), 4) == 2**31 - 4
    assert sum(event.self_cpu_memory_usage for event in run.key_averages()) == 0


def test_lengths_of_one_process() -> None:
    assert agree_on_length(12, None) == 12
    assert type(agree_on_length(np.int32(12), None)) is int  # type: ignore[arg-type]
    for wrong, error, message in (
        (-1, ValueError, "length must be at least 0, got -1"),
        (2**31, ValueError, "length must be at most 2147483647, got 2147483648"),
        ("8", TypeError, "length must be an integer, got '8'"),
        (torch.tensor(8), TypeError, "length must be an integer, got tensor(8)"),
    ):
        with pytest.raises(error) as caught:
            agree_on_length(wrong, None)  # type: ignore[arg-type]
        assert str(caught.value) == message


def test_one_rank_gets_its_tensor_back() -> None:
    """Nothing is copied and no graph grows, whatever the strides."""
    for dtype in (torch.bfloat16, torch.float8_e5m2, torch.complex128, torch.uint16, torch.bool):
        local = random_bits((2, 6, 4), dtype, seed=0).transpose(1, 2)
        for check in (True, False):
            assert gather_sequence(local, None, check) is local


def test_one_rank_has_no_rank_before_it() -> None:
    local = torch.full((2, 4, 3), torch.nan, requires_grad=True)
    found = halo(local, 3, None)
    assert_same_bits(found, torch.zeros(2, 3, 3))
    (gradient,) = torch.autograd.grad(found, local, torch.full((2, 3, 3), torch.inf))
    assert_same_bits(gradient, torch.zeros(2, 4, 3))


@pytest.mark.parametrize(
    "move", [lambda x: gather_sequence(x, None).pow(3), lambda x: halo(x, 2, None) + x[:, :2]], ids=["gather", "halo"]
)
def test_derivatives_of_one_rank(move: Callable[[torch.Tensor], torch.Tensor]) -> None:
    local = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(2, 3, 2).requires_grad_()
    assert gradcheck(move, local, check_forward_ad=True)
    assert gradgradcheck(move, local)


def test_gradients_keep_their_bits_on_one_rank() -> None:
    local = torch.zeros(1, 6, dtype=torch.bfloat16, requires_grad=True)
    upstream = random_bits((1, 6), torch.bfloat16, seed=3)
    (gradient,) = torch.autograd.grad(gather_sequence(local, None), local, upstream)
    assert_same_bits(gradient, upstream)


@pytest.mark.parametrize("check", [True, False])
def test_refusals_of_one_rank(check: bool) -> None:
    local = torch.zeros(2, 4)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (
            lambda: gather_sequence([[1]], None, check),  # type: ignore[arg-type]
            TypeError,
            "tensor must be a torch.Tensor, got list",
        ),
        (
            lambda: gather_sequence(local[0], None, check),
            ValueError,
            "tensor must have shape [batch, columns, ...], got [4]",
        ),
        (lambda: halo(local, 5, None, check), ValueError, "width must be at most the 4 columns of a rank, got 5"),
        (lambda: halo(local, -1, None, check), ValueError, "width must be at least 0, got -1"),
        (lambda: halo(local, 2.0, None, check), TypeError, "width must be an integer, got 2.0"),  # type: ignore[arg-type]
    ]
    for call, error, message in cases:
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value) == message


@pytest.mark.filterwarnings("ignore")  # what Dynamo warns about is not ours
def test_compiled_code_breaks_the_graph() -> None:
    def step(local: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        length = agree_on_length(packed_length(lengths, None, (1, 8), 4), None)
        return torch.cat([halo(local, 1, None), gather_sequence(local.sin(), None)], dim=1) * length

    local, lengths = torch.ones(1, 4), torch.tensor([[3, 5]])
    assert_same_bits(torch.compile(step, backend="eager")(local, lengths), step(local, lengths))


def test_shard_batch_on_one_process_is_the_whole_batch() -> None:
    layout = packed_layout(*TABLES)
    batch = {"ids": torch.arange(8).unsqueeze(0), "mask": torch.ones(1, 8, dtype=torch.bool)}
    found = shard_batch(layout, batch, None, fill={"ids": -1})
    expected = layout.pack_batch(batch, fill={"ids": -1})
    for name in ("position_ids", "sequence_ids", "padding_mask"):
        expected[name] = getattr(layout, name)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert_same_bits(found[name], tensor)
    assert list(batch) == ["ids", "mask"]
    # The shard of one rank is the whole.
    assert_same_bits(shard_batch(layout.shard(0, 1), batch, None)["mask"], expected["mask"])


def test_what_shard_batch_refuses() -> None:
    layout = packed_layout(*TABLES, length_multiple=8)
    ids = torch.arange(8).unsqueeze(0)
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        ((3, 5), {}, TypeError, "layout must be a PackedSequenceLayout, got tuple"),
        (layout, [ids], TypeError, "batch must be a mapping from names to tensors, got list"),
        (
            *(layout, {"ids": ids, "padding_mask": ids, "position_ids": ids}, ValueError),
            "batch may not hold ['position_ids', 'padding_mask'], which come from the layout",
        ),
        (
            *(layout.shard(0, 2), {"ids": ids}, ValueError),
            "layout must be that of the whole rows, got a shard of 8 of the 16 slots of each row",
        ),
        (
            *(layout, {"ids": ids, "labels": ids[:, 1:]}, ValueError),
            "batch['labels'] must have shape [1, 8, ...] to fit the layout, got [1, 7]",
        ),
    ]
    for wrong, batch, error, message in cases:
        with pytest.raises(error) as caught:
            shard_batch(wrong, batch, None)
        assert str(caught.value) == message


def allocations(call: Callable[[], object], trace: Path) -> list[int]:
    """Bytes of every tensor memory that the second call takes."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as run:
        call()
    run.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    return [
        event["args"]["Bytes"] for event in events if event.get("name") == "[memory]" and event["args"]["Bytes"] > 0
    ]


@PROFILER_WARNS
def test_shard_batch_does_not_build_the_packed_tensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As the fourth of eight ranks, alone: `shard_batch` does not communicate.
    monkeypatch.setattr("alignpack.context_parallel.ranks_of", lambda _: Ranks(None, 3, 8))
    batch, sequence, width = 2, 4096, 64
    layout = packed_layout(torch.tensor([[3000, 1096]] * batch), None, (batch, sequence), 4, length_multiple=32)
    values = torch.ones(batch, sequence, width)
    packed = layout.pack(values).nbytes
    results = sum(tensor.nbytes for tensor in shard_batch(layout, {"values": values}, None).values())
    assert results < packed / 7
    taken = allocations(lambda: shard_batch(layout, {"values": values}, None), tmp_path / "trace.json")
    assert max(taken) == values.nbytes / 8
    # A shard has a map of the input row, 8 bytes a slot, and makes it from a few more like it.
    assert sum(taken) < results + 4 * layout.input_positions.nbytes < packed / 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what importing and initialising torch.distributed warns about is not ours
def test_a_group_of_one_rank_that_communicates() -> None:
    """What `bench/nccl_smoke.py` does on one GPU, over gloo."""
    path = ROOT / "bench" / "nccl_smoke.py"
    program = f"import runpy; print(runpy.run_path({str(path)!r})['smoke']('gloo', 'cpu'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(len(WORD_DTYPES))  # an older gloo greets first


def test_a_group_that_was_never_made_known_is_closed() -> None:
    with pytest.raises(ValueError, match=r"^group must be open, but a process group without a name is closed;"):
        gather_sequence(torch.zeros(1, 4), torch.distributed.ProcessGroup(0, 2))  # type: ignore[call-arg]
