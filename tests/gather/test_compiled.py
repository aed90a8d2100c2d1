"""`torch.compile`: whole graphs, the same bits, one graph for many shapes, gathers in the backward."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.utils.checkpoint import checkpoint

from alignpack import CompressionGroups, PackedSequenceLayout, packed_layout
from alignpack import _compiled as compiled_form
from alignpack._inputs.arguments import fill_words
from alignpack._inputs.words import WORD_DTYPES
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import BACKENDS, Target
from tests.torch_version import BEFORE_2_11, DYNAMO_DROPS_THE_TEXT, INDUCTOR_VIEWS_NO_BOOL

pytestmark = [
    pytest.mark.slow,
    # PyTorch's own, on the way into its compilers.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*does not support code generation for complex operators.*"),
]

_NEEDS_A_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None, reason="Inductor needs a C++ compiler; there is no g++"
)
COMPILERS = ["aot_eager", pytest.param("inductor", marks=_NEEDS_A_COMPILER)]

# Inductor compiles a program for each dtype: every change checks one of each width, the nightly run checks all.
_EVERY_CHANGE = {torch.bool, torch.float8_e5m2, torch.bfloat16, torch.float32, torch.int64, torch.complex128}


def _inductor(dtype: torch.dtype) -> Any:
    nightly = [] if dtype in _EVERY_CHANGE else [pytest.mark.nightly]
    older = [INDUCTOR_VIEWS_NO_BOOL] if dtype == torch.bool else []
    return pytest.param(dtype, "inductor", marks=[_NEEDS_A_COMPILER, *nightly, *older])


DTYPES_AND_COMPILERS = [*((dtype, "aot_eager") for dtype in WORD_DTYPES), *map(_inductor, WORD_DTYPES)]


@pytest.fixture
def fast() -> Target:
    """One backend: compiled code is the same for all."""
    return BACKENDS[0]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = torch.compile(function, fullgraph=True, **options)
    return result


@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.parametrize("trailing", [(), (5,)])
def test_values_and_gradients(move: Any, backend: str, trailing: tuple[int, ...]) -> None:
    function = compiled(lambda layout, values: move.apply(layout, values * 2).sin(), backend=backend)
    values = torch.randn(*move.taken, *trailing, requires_grad=True)
    upstream = torch.randn(*move.given, *trailing)
    actual, expected = function(move.layout, values), move.plainly(values * 2).sin()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, values, upstream)[0], torch.autograd.grad(expected, values, upstream)[0]
    )
    assert graphs() == 1


@pytest.mark.parametrize(("dtype", "backend"), DTYPES_AND_COMPILERS, ids=str)
def test_bits(layout: PackedSequenceLayout, backend: str, dtype: torch.dtype) -> None:
    """Every bit pattern arrives, NaN payloads too, and so does the fill."""
    octets = torch.arange(2 * 7 * 19 * dtype.itemsize).mul(37).to(torch.uint8)
    values = (octets % 2 if dtype == torch.bool else octets).view(dtype).view(2, 7, 19)
    fill = 1 if dtype == torch.bool else 3 if not dtype.is_floating_point else -0.0

    def there_and_back(layout: PackedSequenceLayout, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = layout.pack(values, fill)
        return packed, layout.restore(packed)

    actual = compiled(there_and_back, backend=backend)(layout, values)
    for result, expected in zip(actual, there_and_back(layout, values), strict=True):
        assert result.is_contiguous()
        assert_same_bits(result, expected)


@pytest.mark.parametrize("dtype", WORD_DTYPES, ids=str)
@pytest.mark.parametrize("slots", [0, 7])
def test_the_compiled_form_is_right_without_a_compiler(dtype: torch.dtype, slots: int) -> None:
    lengths = torch.tensor([[3, 2], [1, -1000]]) * min(slots, 1)
    layout = packed_layout(lengths, None, (2, slots), 4)
    values = torch.arange(2 * slots * 3 * dtype.itemsize).remainder(2).to(torch.uint8).view(dtype).view(2, slots, 3)
    words = fill_words(1, dtype)
    maps = layout.source_indices, layout.input_positions
    assert_same_bits(compiled_form.gather_compiled(values, *maps, words), layout.pack(values, 1))
    if not (dtype.is_floating_point or dtype.is_complex) or dtype.itemsize == 1:
        return
    leaf = values.clone().requires_grad_()
    upstream = torch.ones(2, maps[0].shape[1], 3, dtype=dtype)
    (gradient,) = torch.autograd.grad(compiled_form.gather_compiled(leaf, *maps, words), leaf, upstream)
    assert_same_bits(gradient, layout.restore(upstream))
    moved: Any = torch.func.jvp(lambda values: compiled_form.gather_compiled(values, *maps, words), (leaf,), (leaf,))
    assert_same_bits(moved[1], layout.pack(values))


def test_a_symbolic_fill_is_made_a_constant_without_a_change() -> None:
    device = torch.device("cpu")
    for fill in (-0.0, 2.5, 2**60 + 1, True):
        words = compiled_form.compile_time_words(fill, torch.float64, "fill", "torch", device)
        assert words == fill_words(fill, torch.float64)
    with pytest.raises(ValueError, match="fill"):
        compiled_form.compile_time_words(0.5, torch.int64, "fill", None, device)


@pytest.mark.parametrize("strides", ["transposed", "sliced", "expanded", "trailing axes transposed"])
def test_results_are_contiguous(layout: PackedSequenceLayout, strides: str) -> None:
    values = {
        "transposed": torch.randn(7, 2, 3, 4).transpose(0, 1),
        "sliced": torch.randn(2, 14, 3, 4)[:, ::2],
        "expanded": torch.randn(2, 1, 1, 4).expand(2, 7, 3, 4),
        "trailing axes transposed": torch.randn(2, 7, 4, 3).transpose(2, 3),
    }[strides]
    packed = compiled(lambda layout, values: layout.pack(values), backend="aot_eager")(layout, values)
    assert packed.is_contiguous()
    assert_same_bits(packed, layout.pack(values))


@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_one_graph_for_changing_lengths_and_one_for_changing_shapes(
    fast: Target, backend: str, dynamic: bool | None
) -> None:
    function = compiled(
        lambda layout, values, fill: layout.restore(layout.pack(values, fill).cos()).sum(),
        backend=backend,
        dynamic=dynamic,
    )
    shapes = itertools.product([2, 3, 5], [8, 11]) if dynamic else [(2, 8)]
    for batch, slots in shapes:
        for lengths in ([3, 2], [1, 6], [-1000, 4]):
            layout = fast.packed_layout(
                torch.tensor([lengths] * batch), None, (batch, slots), 4, minimum_length=slots + 6
            )
            values = torch.randn(batch, slots, 4, requires_grad=True)
            expected = layout.restore(layout.pack(values, 0.25).cos()).sum()
            actual = function(layout, values, 0.25)
            torch.testing.assert_close(actual, expected)
            torch.testing.assert_close(torch.autograd.grad(actual, values)[0], torch.autograd.grad(expected, values)[0])
    assert graphs() == 1


@pytest.mark.parametrize("backend", COMPILERS)
def test_another_fill_is_another_graph_and_right(layout: PackedSequenceLayout, backend: str) -> None:
    values = torch.randn(2, 7)
    function = compiled(lambda layout, values, fill: layout.pack(values, fill), backend=backend)
    # Not -0.0 after 0.0: to Dynamo's guards they are equal, so that it takes the graph of whichever came first.
    for fill in (0.0, 1.5, float("nan"), float("inf"), 2, True, -(2.0**-149)):
        assert_same_bits(function(layout, values, fill), layout.pack(values, fill))


@pytest.mark.parametrize("backend", COMPILERS)
def test_transforms_inside(move: Any, backend: str) -> None:
    values, tangent = torch.randn(3, *move.taken, 2), torch.randn(*move.taken, 2)

    def loss(function: Any) -> Any:
        return lambda values: function(values).pow(2).sum()

    def everything(values: torch.Tensor, tangent: torch.Tensor) -> Any:
        return (
            torch.func.grad(loss(move))(values[0]),
            torch.vmap(lambda values: move(values))(values),
            torch.vmap(torch.func.grad(loss(move)))(values),
            *torch.func.jvp(move, (values[0],), (tangent,)),
        )

    def each(function: Any, values: torch.Tensor) -> torch.Tensor:
        return torch.stack([function(of_one) for of_one in values])

    expected = (
        torch.func.grad(loss(move.plainly))(values[0]),
        each(move.plainly, values),
        each(torch.func.grad(loss(move.plainly)), values),
        *torch.func.jvp(move.plainly, (values[0],), (tangent,)),
    )
    for actual, wanted in zip(compiled(everything, backend=backend)(values, tangent), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_vmap_over_layouts_inside(move: Any, backend: str, in_dims: Any) -> None:
    """`(layouts, values)`: over both, over the layouts alone, over the values alone."""
    tables = torch.tensor([[[3, 2], [1, -1000]], [[5, 2], [0, 3]], [[1, 6], [7, 0]]])
    layouts = [packed_layout(table, None, (2, 7), 4, minimum_length=12) for table in tables]
    stacked = PackedSequenceLayout(*map(torch.stack, zip(*(one._tensors() for one in layouts), strict=True)))
    values = torch.randn(3, 2, 7 if move.name == "pack" else 12, 4)
    of_layouts, of_values = (dim == 0 for dim in in_dims)
    arguments = stacked if of_layouts else layouts[0], values if of_values else values[0]
    actual = compiled(torch.vmap(move.apply, in_dims=in_dims), backend=backend)(*arguments)
    for i in range(3):
        expected = move.formula(layouts[i if of_layouts else 0], values[i if of_values else 0])
        assert_same_bits(actual[i], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(2, 7, 3), (2, 0, 3), (0, 7, 3), (2, 7, 0), (2, 7)])
def test_gradients_of_every_dtype_and_of_nothing_inside(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    lengths = torch.tensor([[3, 2], [1, -1000]])[: shape[0]] * min(shape[1], 1)
    layout = packed_layout(lengths, None, (shape[0], shape[1]), 4)
    values, weights = torch.ones(shape).to(dtype), torch.ones(*layout.source_indices.shape, *shape[2:])

    def loss(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = layout.pack(values, 2)
        return (packed.real if dtype.is_complex else packed).mul(weights).sum(), packed

    gradient, packed = compiled(torch.func.grad(loss, has_aux=True), backend="aot_eager")(values)
    assert packed.is_contiguous()
    assert_same_bits(packed, layout.pack(values, 2))
    assert_same_bits(gradient, layout.restore(weights.to(dtype)))


@pytest.mark.parametrize("backend", COMPILERS)
def test_checkpointing_inside(move: Any, backend: str) -> None:
    values = torch.randn(*move.taken, 3, requires_grad=True)

    def block(values: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = move(values.sin()).sin()
        return moved

    function = compiled(lambda values: checkpoint(block, values, use_reentrant=False), backend=backend)
    (actual,) = torch.autograd.grad(function(values).sum(), values)
    torch.testing.assert_close(actual, torch.autograd.grad(block(values).sum(), values)[0])


def test_no_backward_accumulates(move: Any) -> None:
    from torch._dynamo.backends.common import aot_autograd

    seen: dict[str, list[str]] = {}

    def keep(name: str) -> Any:
        def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
            seen[name] = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
            return make_boxed_func(graph.forward)

        return compiler

    function = compiled(move.apply, backend=aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward")))
    values = torch.randn(*move.taken, 3, requires_grad=True)
    torch.autograd.grad(function(move.layout, values).sum(), values)
    # Before 2.11 gradients are found through a scatter of floats, as under `torch.func` below.
    moves = ["aten.scatter.src", "aten.gather.default"] if BEFORE_2_11 else ["aten.index.Tensor"] * 2
    assert [move for move, name in zip(moves, ("forward", "backward"), strict=True) if move not in seen[name]] == []
    assert not accumulating(seen["backward"])

    compiled(
        lambda layout, values: torch.func.grad(lambda values: move.apply(layout, values).sin().sum())(values),
        backend=aot_autograd(fw_compiler=keep("both")),
    )(move.layout, values.detach())
    assert "aten.gather.default" in seen["both"]
    assert not accumulating(seen["both"])


def accumulating(operators: list[str]) -> list[str]:
    return [name for name in operators if any(word in name for word in ("put", "add", "reduce", "sort"))]


def test_building_a_layout_is_a_graph_break() -> None:
    lengths = torch.tensor([[3, 2], [1, -1000]])

    def step(values: torch.Tensor) -> torch.Tensor:
        return packed_layout(lengths, None, (2, 5), 4).pack(values * 2, 7).sin()

    values = torch.randn(2, 5, 3)
    torch.testing.assert_close(torch.compile(step, backend="eager")(values), step(values))
    torch._dynamo.reset()
    with pytest.raises(
        torch._dynamo.exc.Unsupported, match="packed_layout is host work: call it outside of code compiled"
    ):
        compiled(step, backend="eager")(values)


def test_groups_shifts_and_shards_are_traced_without_a_break() -> None:
    layout = packed_layout(torch.tensor([[3, 6], [1, 0]]), None, (2, 9), 4, length_multiple=8)

    def derive(layout: PackedSequenceLayout) -> tuple[CompressionGroups, PackedSequenceLayout, torch.Tensor]:
        return layout.groups(2), layout.shift(1).shard(1, 2), layout.token_counts

    groups, shard, counts = compiled(derive, backend="aot_eager")(layout)
    assert groups.equal(layout.groups(2))
    assert shard.equal(layout.shift(1).shard(1, 2))
    assert_same_bits(counts, layout.token_counts)


def test_what_is_refused_eagerly_is_refused_when_compiled(layout: PackedSequenceLayout) -> None:
    function = torch.compile(lambda values, fill, name: layout.pack(values, fill, backend=name), backend="eager")
    for values, fill, backend, error, text in [
        (torch.zeros(2, 8), 0, None, ValueError, "values"),
        (torch.zeros(2, 7, dtype=torch.int64), 0.5, None, ValueError, "fill"),
        (torch.zeros(2, 7, dtype=torch.uint8), 256, None, ValueError, "fill"),
        (torch.zeros(2, 7), 1j, None, TypeError, "fill"),
        (torch.zeros(2, 7), 0, "fast", ValueError, "backend='fast'"),
    ]:
        torch._dynamo.reset()
        with pytest.raises(error, match=text):
            function(values, fill, backend)


@DYNAMO_DROPS_THE_TEXT
@pytest.mark.parametrize(
    ("values", "fill", "backend"),
    [
        (torch.zeros(2, 8), 0, None),
        (torch.zeros(2, 7, dtype=torch.int64), 0.5, None),
        (torch.zeros(2, 7), 1j, None),
        (torch.zeros(2, 7), 0, "fast"),
    ],
)
def test_a_refusal_in_one_graph_keeps_its_text(
    layout: PackedSequenceLayout, values: torch.Tensor, fill: Any, backend: Any
) -> None:
    with pytest.raises((TypeError, ValueError)) as eager:
        layout.pack(values, fill, backend=backend)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        compiled(lambda values: layout.pack(values, fill, backend=backend), backend="eager")(values)
    assert f"{type(eager.value).__name__}({str(eager.value)!r})" in str(caught.value)


def test_a_refusal_may_be_of_a_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("the device is full")

    monkeypatch.setattr(compiled_form, "select_backend", out_of_memory)
    with pytest.raises(RuntimeError, match=r"^the device is full$"):
        compiled_form.compile_time_words(0, torch.int64, "fill", "numba", torch.device("cpu"))
