"""Cases about transforms, compilers and kernels, on every backend."""

from collections.abc import Iterator

import pytest
import torch

from alignpack import PackedSequenceLayout, packed_layout
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.targets import Target


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.case("E7")
def test_functorch_transforms(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4)
    values = torch.randn(3, 1, 8, 2, dtype=torch.float64)
    assert_same_bits(
        torch.vmap(layout.pack)(values).contiguous(), torch.stack([layout.pack(of_one) for of_one in values])
    )

    def cubes(values: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = layout.pack(values).pow(3).sum()
        return total

    assert_same_bits(torch.func.grad(cubes)(values[0]), 3 * values[0].pow(2))
    tangent = torch.func.jvp(layout.pack, (values[0],), (values[1],))[1]
    assert_same_bits(tangent, layout.pack(values[1]))
    jacobian = torch.func.jacrev(layout.pack)(values[0])
    assert torch.equal(jacobian.sum((0, 1, 2)), torch.ones(1, 8, 2))
    hessian = torch.func.hessian(cubes)(values[0]).reshape(16, 16)
    assert torch.equal(hessian, torch.diag(6 * values[0].reshape(16)))


@pytest.mark.case("G2", "G3")
@pytest.mark.slow  # before PyTorch 2.9 the compiler asks for a C compiler
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, on the way into its compilers
def test_one_graph_for_tables_of_equal_width() -> None:
    def there_and_back(layout: PackedSequenceLayout, values: torch.Tensor) -> torch.Tensor:
        return layout.restore(layout.pack(values))

    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    values = torch.randn(1, 8, 2)
    for lengths in ([[3, 5]], [[5, 3]]):
        layout = packed_layout(torch.tensor(lengths), None, (1, 8), 4)
        assert_same_bits(compiled(layout, values), values)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.case("H1")
def test_kernels_take_tensors_that_require_grad(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4)
    values = torch.randn(1, 8, 2, requires_grad=True)
    packed = layout.pack(values)
    assert packed.requires_grad
    assert_same_bits(packed.detach(), layout.pack(values.detach()))


@pytest.mark.case("H2")
def test_kernels_take_bfloat16(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[2]]), None, (1, 2), 3)
    packed = layout.pack(torch.tensor([[1.0, 3.140625]], dtype=torch.bfloat16), -100)
    assert packed.view(torch.int16).tolist() == [[0x3F80, 0x4049, 0xC2C8 - 2**16]]


@pytest.mark.case("H6")
def test_nothing_to_move(fast: Target) -> None:
    layout = fast.packed_layout(torch.tensor([[3, 5]]), None, (1, 8), 4)
    assert layout.pack(torch.zeros(1, 8, 0)).shape == (1, 12, 0)
    assert layout.restore(torch.zeros(1, 12, 0)).shape == (1, 8, 0)
    empty = fast.packed_layout(torch.zeros(0, 2, dtype=torch.int64), None, (0, 8), 4)
    assert empty.pack(torch.zeros(0, 8, 2)).shape == (0, 4, 2)
    assert empty.restore(torch.zeros(0, 4, 2)).shape == (0, 8, 2)
