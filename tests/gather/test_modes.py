"""Modes of PyTorch around the calls: fake tensors, tracers, autocast, checkpoints, sharded training."""

import functools
import socket
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from alignpack import PackedSequenceLayout, _gather, _torch_state, packed_layout
from alignpack._backends import BackendName
from alignpack_fuzz.compare import assert_same_bits
from tests.torch_version import BEFORE_2_10, PROFILER_WARNS


@pytest.mark.parametrize("trailing", [(), (3,), (2, 700)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float8_e5m2])
def test_fake_tensors(move: Any, trailing: tuple[int, ...], dtype: torch.dtype) -> None:
    values = torch.zeros(*move.taken, *trailing, dtype=dtype)
    with FakeTensorMode() as mode:
        fields = (mode.from_tensor(field) for field in move.layout._tensors())
        fake = move.apply(PackedSequenceLayout(*fields), mode.from_tensor(values))
    assert (fake.shape, fake.dtype) == ((*move.given, *trailing), dtype)


@pytest.mark.parametrize("trailing", [(), (3,)])
def test_meta_tensors(monkeypatch: pytest.MonkeyPatch, trailing: tuple[int, ...]) -> None:
    monkeypatch.delenv("ALIGNPACK_BACKEND", raising=False)
    layout = packed_layout(torch.tensor([[3, 2]]), None, (1, 5), 4, device="meta")
    packed = layout.pack(torch.zeros(1, 5, *trailing, device="meta"))
    assert (packed.shape, packed.device.type) == ((1, 8, *trailing), "meta")
    assert layout.restore(packed).shape == (1, 5, *trailing)


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_make_fx(move: Any, tracing: Any) -> None:
    def there_and_squared(values: torch.Tensor, *fields: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = move.apply(PackedSequenceLayout(*fields), values).pow(2)
        return moved

    values = torch.randn(*move.taken, 3)
    graph = make_fx(there_and_squared, tracing_mode=tracing)(values, *move.layout._tensors())
    assert _gather.OPERATOR in {node.target for node in graph.graph.nodes}
    other = torch.randn(*move.taken, 3)
    assert_same_bits(graph(other, *move.layout._tensors()), move(other).pow(2))
    leaf = other.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(graph(leaf, *move.layout._tensors()).sum(), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(move(leaf).pow(2).sum(), leaf, create_graph=True)
    assert_same_bits(gradient.detach(), expected.detach())
    second, expected_second = (torch.autograd.grad(first.pow(2).sum(), leaf)[0] for first in (gradient, expected))
    assert_same_bits(second, expected_second)


@pytest.mark.slow  # before PyTorch 2.9 the check asks for a C compiler
@pytest.mark.parametrize("backend", get_args(BackendName))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.complex128])
def test_the_operator_is_well_formed(layout: PackedSequenceLayout, backend: str, dtype: torch.dtype) -> None:
    values = torch.zeros(2, 7, 3, dtype=dtype)
    words = (5, 6) if dtype == torch.complex128 else (5,)
    if dtype.is_floating_point:
        values.requires_grad_()
    maps = layout.source_indices, layout.input_positions
    results = torch.library.opcheck(_gather.OPERATOR, (values, *maps, words, backend))
    assert set(results.values()) == {"SUCCESS"}


@pytest.fixture
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("trailing", [(), (3,), (700,)])
def test_deterministic_mode(move: Any, trailing: tuple[int, ...]) -> None:
    """Under it, fresh memory is filled with NaN: nothing of that may remain."""
    values = torch.randn(*move.taken, *trailing, requires_grad=True)
    moved = move(values)
    assert_same_bits(moved, move.plainly(values))
    (gradient,) = torch.autograd.grad(moved.sum(), values)
    assert_same_bits(gradient, torch.autograd.grad(move.plainly(values).sum(), values)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_autocast_leaves_the_dtype(move: Any, dtype: torch.dtype) -> None:
    values = torch.randn(*move.taken, 3).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        moved = move(values)
    assert_same_bits(moved, move(values))
    assert torch.autograd.grad(moved.sum(), values)[0].dtype == dtype


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(move: Any, use_reentrant: bool) -> None:
    values = torch.randn(*move.taken, 3, requires_grad=True)

    def block(values: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = move(values.sin()).sin()
        return moved

    (expected,) = torch.autograd.grad(block(values).sum(), values)
    checkpoint(block, values, use_reentrant=use_reentrant).sum().backward()
    assert values.grad is not None
    assert_same_bits(values.grad, expected)


@pytest.mark.parametrize("saved", [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE])
def test_selective_checkpointing_sees_one_operator(move: Any, saved: CheckpointPolicy) -> None:
    seen: list[Any] = []

    def policy(_context: Any, operator: Any, *_arguments: Any, **_named: Any) -> CheckpointPolicy:
        seen.append(operator)
        return saved if operator == _gather.OPERATOR else CheckpointPolicy.PREFER_RECOMPUTE

    values = torch.randn(*move.taken, 3, requires_grad=True)
    moved = checkpoint(
        move,
        values,
        use_reentrant=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
    )
    assert seen == [_gather.OPERATOR]
    (gradient,) = torch.autograd.grad(moved.sin().sum(), values)
    assert_same_bits(gradient, torch.autograd.grad(move(values).sin().sum(), values)[0])


def test_inference_mode(move: Any) -> None:
    values = torch.randn(*move.taken, 3)
    with torch.inference_mode():
        moved = move(values)
        assert moved.is_inference()
        assert_same_bits(move(values * 1).clone(), move(values))


class Operators(TorchDispatchMode):
    """Writes down the operators that it sees."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@PROFILER_WARNS
@pytest.mark.parametrize("trailing", [(), (700,)])
def test_no_backward_accumulates(move: Any, trailing: tuple[int, ...]) -> None:
    values = torch.randn(*move.taken, *trailing, requires_grad=True)
    with profile() as profiler:
        torch.autograd.grad(move(values), values, torch.ones(*move.given, *trailing))
    names = {event.name for event in profiler.events()}
    assert not [name for name in names if any(word in name for word in ("index_put", "index_add", "scatter", "sort"))]
    upstream = torch.ones(*move.given, *trailing, requires_grad=True)
    with Operators() as mode:
        (gradient,) = torch.autograd.grad(move(values), values, upstream, create_graph=True)
        torch.autograd.grad(gradient.sum(), upstream)
    assert mode.seen.count(_gather.OPERATOR) == 3


def test_modes_see_calls_that_nothing_else_watches(move: Any) -> None:
    with Operators() as mode:
        move(torch.zeros(*move.taken))
        move(torch.zeros(*move.taken, dtype=torch.int32))
    assert mode.seen.count(_gather.OPERATOR) == 2


def test_the_private_names_are_there(move: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `alignpack._torch_state` takes from PyTorch; without it everything works, more slowly."""
    assert _torch_state.PRIVATE_NAMES_FOUND, (
        "this PyTorch lacks a private name that alignpack._torch_state uses: look for its new form"
    )
    calls = 0

    def counting(*arguments: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        moved: torch.Tensor = _gather.OPERATOR(*arguments)
        return moved

    monkeypatch.setattr(_gather, "call_operator", counting)
    values = torch.randn(*move.taken, 3, requires_grad=True)
    expected = torch.autograd.grad(move(values).sum(), values)[0]
    move(values.detach())
    assert calls == 0  # no mode is active
    monkeypatch.setattr(_torch_state, "PRIVATE_NAMES_FOUND", False)
    move(values.detach())
    assert calls == 1
    assert_same_bits(torch.autograd.grad(move(values).sum(), values)[0], expected)
    assert_same_bits(torch.vmap(move)(values[None])[0].contiguous(), move(values))
    if not BEFORE_2_10:  # its jvp gives a fill that is made under it no memory
        assert_same_bits(torch.func.jvp(move, (values,), (values,))[1], move.plainly(values) - move.plainly(values * 0))


@pytest.fixture(scope="module")
def _one_process() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(torch.nn.Module):
    """Takes its layout as a keyword, as a decoder layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.layout: PackedSequenceLayout | None = None

    def forward(self, values: torch.Tensor, *, layout: PackedSequenceLayout) -> torch.Tensor:
        """Pack, compute, restore."""
        self.layout = layout
        return layout.restore(self.linear(layout.pack(values)))


@pytest.mark.usefixtures("_one_process")
def test_fully_sharded_training_with_mixed_precision_keeps_the_layout(layout: PackedSequenceLayout) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    block = Block()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    fully_shard(block, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    whole = layout[:]
    block(torch.randn(2, 7, 4), layout=whole).sum().backward()
    assert block.layout is not None
    assert block.layout.equal(whole)
    assert block.layout.shard(1, 2).equal(whole.shard(1, 2))
    assert all(parameter.grad is not None for parameter in block.parameters())


def test_functionalize_is_refused_by_pytorch_and_needed_by_no_graph(move: Any) -> None:
    """docs/contract.md says so: when PyTorch learns it, the page changes."""
    values = torch.randn(move.taken)
    with pytest.raises(RuntimeError, match="NYI: Functionalize rule for custom_function_call"):
        torch.func.functionalize(move)(values)
    targets = [str(node.target) for node in make_fx(move)(values).graph.nodes if node.op == "call_function"]
    assert targets
    assert not [target for target in targets if target.split(".")[1].endswith("_")]
