"""What `pack` and `restore` refuse: the class of the error and its exact text."""

from typing import Any

import numpy as np
import pytest
import torch

import alignpack
import alignpack_reference
from alignpack_fuzz.targets import REFERENCE, Target
from tests.calls import arguments

I32, I64 = 2**31 - 1, 2**63 - 1


VALUES: list[tuple[Any, Any, type[Exception], str]] = [
    (torch.zeros(1, 7), 0, ValueError, "values must have shape [1, 8, ...] to fit the layout, got [1, 7]"),
    (torch.zeros(8), 0, ValueError, "values must have shape [1, 8, ...] to fit the layout, got [8]"),
    (torch.zeros(()), 0, ValueError, "values must have shape [1, 8, ...] to fit the layout, got []"),
    (torch.zeros(2, 8, 3), 0, ValueError, "values must have shape [1, 8, ...] to fit the layout, got [2, 8, 3]"),
    (
        torch.zeros(3, 1, 8),
        0,
        ValueError,
        (
            "values must have shape [1, 8, ...] to fit the layout, got [3, 1, 8]; its last two axes would fit, so move the "
            "first to the end: movedim(0, -1)"
        ),
    ),
    (torch.zeros(1, 8), "0", TypeError, "fill must be a Python or NumPy number (no long double), got str"),
    (torch.zeros(1, 8), None, TypeError, "fill must be a Python or NumPy number (no long double), got NoneType"),
    (
        torch.zeros(1, 8),
        torch.tensor(0.0),
        TypeError,
        "fill must be a Python or NumPy number (no long double), got Tensor; pass fill.item()",
    ),
    (
        torch.zeros(1, 8),
        np.array(0.0),
        TypeError,
        "fill must be a Python or NumPy number (no long double), got ndarray; pass fill.item()",
    ),
    (
        torch.zeros(1, 8),
        np.longdouble(1),
        TypeError,
        "fill must be a Python or NumPy number (no long double), got longdouble",
    ),
    (
        torch.zeros(1, 8, dtype=torch.complex64),
        np.clongdouble(1),
        TypeError,
        "fill must be a Python or NumPy number (no long double), got clongdouble",
    ),
    (
        torch.zeros(1, 8, dtype=torch.int64),
        np.float64(2.0**63),  # NumPy would find it equal to 2**63 - 1
        ValueError,
        "fill must be an integer from -9223372036854775808 to 9223372036854775807 for int64, got 9.223372036854776e+18",
    ),
    (torch.zeros(1, 8).bool(), 2**300, ValueError, "fill must be 0 or 1 for bool, got an integer of 301 bits"),
    (torch.zeros(1, 8), 1j, TypeError, "fill must be real for float32, got 1j"),
    (torch.zeros(1, 8), np.complex64(2), TypeError, "fill must be real for float32, got (2+0j)"),
    (torch.zeros(1, 8, dtype=torch.bool), 2, ValueError, "fill must be 0 or 1 for bool, got 2"),
    (
        torch.zeros(1, 8, dtype=torch.uint8),
        -1,
        ValueError,
        "fill must be an integer from 0 to 255 for uint8, got -1",
    ),
    (
        torch.zeros(1, 8, dtype=torch.int64),
        2.0**63,
        ValueError,
        "fill must be an integer from -9223372036854775808 to 9223372036854775807 for int64, got 9.223372036854776e+18",
    ),
    (
        torch.zeros(1, 8, dtype=torch.float16),
        torch.finfo(torch.float32).min,
        ValueError,
        (
            "fill must be infinite or from -65504.0 to 65504.0 for float16, got -3.4028234663852886e+38; "
            "torch.finfo(values.dtype).min and .max are the limits"
        ),
    ),
    # Types before shapes, shapes before the size of the fill.
    (torch.zeros(1, 7), "0", TypeError, "fill must be a Python or NumPy number (no long double), got str"),
    (
        torch.zeros(1, 7, dtype=torch.uint8),
        -1,
        ValueError,
        "values must have shape [1, 8, ...] to fit the layout, got [1, 7]",
    ),
]


@pytest.mark.parametrize(
    ("values", "fill", "error", "message"), VALUES, ids=lambda value: value[:70] if isinstance(value, str) else None
)
def test_values(target: Target, values: torch.Tensor, fill: Any, error: type[Exception], message: str) -> None:
    layout = target.packed_layout(**arguments())
    with pytest.raises(error) as caught:
        layout.pack(values, fill)
    assert type(caught.value) is error
    assert str(caught.value) == message


def test_values_must_be_plain_tensors(target: Target) -> None:
    layout = target.packed_layout(**arguments())
    expected = "numpy.ndarray" if target is REFERENCE else "torch.Tensor"
    for move in (layout.pack, layout.restore):
        with pytest.raises(TypeError, match=f"^values must be a {expected}, got list$"):
            move([[0] * 8])


def test_the_reference_refuses_dtypes_outside_the_contract() -> None:
    layout = alignpack_reference.packed_layout(np.array([[3]]), None, (1, 3), 4)
    for dtype in (np.dtype("U1"), np.dtype(object), np.dtype(">i4"), np.dtype("M8[s]"), np.dtype(np.longdouble)):
        with pytest.raises(TypeError, match=r"^values has dtype .* not supported"):
            layout.pack(np.zeros((1, 3), dtype))


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_a_masked_tensor_is_refused_with_advice() -> None:
    from torch.masked import masked_tensor

    masked = masked_tensor(torch.zeros(1, 8), torch.ones(1, 8, dtype=torch.bool))
    layout = alignpack.packed_layout(**arguments())
    for move in (layout.pack, layout.restore):
        with pytest.raises(TypeError) as caught:
            move(masked)
        assert str(caught.value) == (
            "values must be a plain dense tensor, got a MaskedTensor; pack .get_data() and .get_mask()"
        )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:ComplexHalf")
def test_unsupported_tensors_are_refused() -> None:
    layout = alignpack.packed_layout(**arguments())
    dense = torch.zeros(1, 8)
    for wrong, message in (
        (dense.to_sparse(), "values must be a plain dense tensor, got a tensor of layout torch.sparse_coo"),
        (torch.nested.nested_tensor([dense[0]]), "values must be a plain dense tensor, got a nested tensor"),
        (
            torch.nested.nested_tensor([dense[0]], layout=torch.jagged),
            "values must be a plain dense tensor, got a nested tensor",
        ),
        (
            torch.zeros(1, 8, dtype=torch.uint8).view(torch.float8_e8m0fnu),
            (
                "values has dtype float8_e8m0fnu, which is not supported: use bool, an integer, float8 (e4m3, e5m2), "
                "float16, bfloat16, float32, float64, complex64 or complex128"
            ),
        ),
        (
            torch.zeros(1, 8, dtype=torch.complex32),
            (
                "values has dtype complex32, which is not supported: use bool, an integer, float8 (e4m3, e5m2), float16, "
                "bfloat16, float32, float64, complex64 or complex128"
            ),
        ),
    ):
        for move in (layout.pack, layout.restore):
            with pytest.raises(TypeError) as caught:
                move(wrong)
            assert str(caught.value) == message


@pytest.mark.filterwarnings("ignore")  # what importing and initialising torch.distributed warns about is not ours
def test_a_dtensor_is_refused_with_advice(tmp_path: Any) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    layout = alignpack.packed_layout(**arguments())
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        values = DTensor.from_local(torch.zeros(1, 8), init_device_mesh("cpu", (1,)))
        with pytest.raises(TypeError) as caught:
            layout.pack(values)
    finally:
        dist.destroy_process_group()
    assert str(caught.value) == "values must be a plain dense tensor, got a DTensor; use the local tensor, .to_local()"
