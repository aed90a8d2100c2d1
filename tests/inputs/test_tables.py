"""What `packed_layout` refuses: the class of the error, its exact text, its place, and which fault comes first."""

from typing import Any

import numpy as np
import pytest
import torch

import alignpack
import alignpack_reference
from alignpack import LayoutError
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.targets import REFERENCE, Target
from tests.calls import arguments, table

I32, I64 = 2**31 - 1, 2**63 - 1


ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"alignment": 0}, ValueError, "alignment must be at least 1, got 0"),
    ({"alignment": 4.0}, TypeError, "alignment must be an integer, got 4.0"),
    ({"alignment": True}, TypeError, "alignment must be an integer, got True"),
    ({"alignment": None}, TypeError, "alignment must be an integer, got None"),
    ({"alignment": np.array([4, 4])}, TypeError, "alignment must be an integer, got array([4, 4])"),
    ({"alignment": -(2**300)}, ValueError, "alignment must be at least 1, got an integer of 301 bits"),
    ({"minimum_length": -1}, ValueError, "minimum_length must be at least 0, got -1"),
    ({"minimum_length": 8.5}, TypeError, "minimum_length must be an integer, got 8.5"),
    ({"length_multiple": 0}, ValueError, "length_multiple must be at least 1, got 0"),
    ({"length_multiple": "8"}, TypeError, "length_multiple must be an integer, got '8'"),
    ({"input_shape": (1, -8)}, ValueError, "input_shape[1] must be at least 0, got -8"),
    ({"input_shape": (-1, 8)}, ValueError, "input_shape[0] must be at least 0, got -1"),
    ({"input_shape": (1, 8.0)}, TypeError, "input_shape[1] must be an integer, got 8.0"),
    ({"input_shape": (1, 2**31)}, ValueError, "input_shape[1] must be at most 2147483647, got 2147483648"),
    (
        {"input_shape": (1, 8, 5)},
        ValueError,
        "input_shape must be (batch, original_sequence), got (1, 8, 5); pass values.shape[:2]",
    ),
    ({"input_shape": (8,)}, ValueError, "input_shape must be (batch, original_sequence), got (8,)"),
    (
        {"input_shape": torch.zeros(2, 8)},
        TypeError,
        "input_shape must be (batch, original_sequence), got Tensor; pass values.shape[:2]",
    ),
    (
        {"input_shape": np.zeros((2, 8, 5))},
        TypeError,
        "input_shape must be (batch, original_sequence), got ndarray; pass values.shape[:2]",
    ),
    ({"input_shape": np.array(8)}, TypeError, "input_shape must be (batch, original_sequence), got array(8)"),
    ({"input_shape": 8}, TypeError, "input_shape must be (batch, original_sequence), got 8"),
    (
        {"seq_lens": torch.tensor([[3.0, 2.0]])},
        ValueError,
        "seq_lens must be int32 or int64, got float32",
    ),
    (
        {"seq_lens_padded": table([[4, 4]], torch.int16)},
        ValueError,
        "seq_lens_padded must be int32 or int64, got int16",
    ),
    (
        {"seq_lens": table([3, 2]), "seq_lens_padded": None, "input_shape": (2, 5)},
        ValueError,
        "seq_lens must have shape [2, documents] (or [documents] when the batch is 1) to fit input_shape, got [2]",
    ),
    (
        {"seq_lens": table([[[3, 2]]])},
        ValueError,
        "seq_lens must have shape [1, documents] (or [documents] when the batch is 1) to fit input_shape, got [1, 1, 2]",
    ),
    (
        {"seq_lens": table(3)},
        ValueError,
        "seq_lens must have shape [1, documents] (or [documents] when the batch is 1) to fit input_shape, got []",
    ),
    (
        {"seq_lens_padded": table([[4], [4]])},
        ValueError,
        (
            "seq_lens_padded must have shape [1, documents] (or [documents] when the batch is 1) to fit input_shape, "
            "got [2, 1]"
        ),
    ),
    (
        {"seq_lens_padded": table([4, 4, 0])},
        ValueError,
        "seq_lens_padded must have the shape of seq_lens, got [1, 3] for a seq_lens of [1, 2]",
    ),
    (
        {"seq_lens_padded": table([[4]])},
        ValueError,
        "seq_lens_padded must have the shape of seq_lens, got [1, 1] for a seq_lens of [1, 2]",
    ),
    (
        {"alignment": 2**31},
        ValueError,
        (
            "padded_sequence would be 2147483648, it must be at most 2147483647 (alignment=2147483648, minimum_length=0, "
            "length_multiple=None)"
        ),
    ),
    (
        {"minimum_length": 2**70, "length_multiple": 3},
        ValueError,
        (
            "padded_sequence would be 1180591620717411303432, it must be at most 2147483647 (alignment=4, "
            "minimum_length=1180591620717411303424, length_multiple=3)"
        ),
    ),
    (  # each argument alone would do, together they are too wide
        {"alignment": 2**30},
        ValueError,
        (
            "padded_sequence would be 2147483648, it must be at most 2147483647 (alignment=1073741824, minimum_length=0, "
            "length_multiple=None)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"), ARGUMENTS, ids=lambda value: value[:70] if isinstance(value, str) else None
)
def test_arguments(target: Target, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        target.packed_layout(**arguments(**changes))
    assert type(caught.value) is error
    assert str(caught.value) == message


WRONG_DOCUMENTS: list[tuple[Tables, int, int, str]] = [
    (
        Tables(table([[3, -5]]), None, (1, 8), 4),
        *(0, 1),
        "seq_lens is -5; a length is positive, or 0 or -1000 where there is no document",
    ),
    (
        Tables(table([[3, 0], [2, 2]]), table([[4, 0], [2, 1]], torch.int32), (2, 8), 4),
        *(1, 1),
        "seq_lens_padded is 1, a physical span shorter than the document, whose seq_lens is 2",
    ),
    (
        Tables(table([[0, 3]]), table([[5, 3]]), (1, 8), 4),
        *(0, 0),
        "seq_lens is 0 (no document) but seq_lens_padded is 5; without a document the physical span must be 0 or -1000",
    ),
    (
        Tables(table([[-1000, 3]]), table([[-1, 3]]), (1, 8), 4),
        *(0, 0),
        "seq_lens is -1000 (no document) but seq_lens_padded is -1; without a document the physical span must be 0 or -1000",
    ),
    (
        Tables(table([[4, -1000, 5]]), None, (1, 8), 4),
        *(0, 2),
        "seq_lens is 5 from slot 4 on, so the physical spans end at slot 9 of a row of 8",
    ),
    (
        Tables(table([3, 3]), table([[4, 5]]), (1, 8), 4),
        *(0, 1),
        "seq_lens_padded is 5 from slot 4 on, so the physical spans end at slot 9 of a row of 8",
    ),
    # Sums that wrap: to a negative number in int32, to zero in int64.
    (
        Tables(table([[1, I32 - 1, 1]], torch.int32), None, (1, 8), 4),
        *(0, 1),
        "seq_lens is 2147483646 from slot 1 on, so the physical spans end at slot 2147483647 of a row of 8",
    ),
    (
        Tables(table([[1, 1, 1, 1]]), table([[1, 2**62, 2**62, 2**62]]), (1, 8), 4),
        *(0, 1),
        f"seq_lens_padded is {2**62} from slot 1 on, so the physical spans end at slot {2**62 + 1} of a row of 8",
    ),
    (
        Tables(table([[1, I64]]), None, (1, 8), 4),
        *(0, 1),
        f"seq_lens is {I64} from slot 1 on, so the physical spans end at slot {2**63} of a row of 8",
    ),
    (
        Tables(table([[-I64 - 1]]), table([[-I64 - 1]]), (1, 8), 4),
        *(0, 0),
        f"seq_lens is {-I64 - 1}; a length is positive, or 0 or -1000 where there is no document",
    ),
]


@pytest.mark.parametrize(
    ("tables", "row", "document", "message"),
    WRONG_DOCUMENTS,
    ids=lambda value: value[:70] if isinstance(value, str) else None,
)
def test_documents(target: Target, tables: Tables, row: int, document: int, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        tables.build(target)
    assert str(caught.value) == f"row {row}, document {document}: {message}"
    assert (caught.value.row, caught.value.document) == (row, document)


def test_the_first_fault_in_row_major_order_is_named(target: Target) -> None:
    wrong = Tables(table([[3, 3, -7], [-7, 9, 9]]), None, (2, 5), 4)
    with pytest.raises(LayoutError, match="row 0, document 1: seq_lens is 3 from slot 3 on, so"):
        wrong.build(target)


def test_the_widest_row_is_legal() -> None:
    nothing: dict[str, Any] = {"seq_lens_padded": None, "alignment": 1, "minimum_length": 2**31 - 1}
    rows = alignpack.packed_layout(torch.zeros(1, 0, dtype=torch.int64), input_shape=(1, 0), device="meta", **nothing)
    assert rows.source_indices.shape == (1, 2**31 - 1)
    reference = alignpack_reference.packed_layout(np.zeros((0, 0), np.int64), input_shape=(0, 2**31 - 1), **nothing)
    assert reference.source_indices.shape == reference.input_positions.shape == (0, 2**31 - 1)


@pytest.mark.parametrize("shape", [[1, 8], torch.Size([1, 8]), torch.tensor([1, 8]).numpy(), range(1, 9, 7)], ids=str)
def test_any_sequence_of_two_integers_is_a_shape(target: Target, shape: Any) -> None:
    layout = target.packed_layout(**arguments(input_shape=shape))
    assert tuple(layout.input_positions.shape) == (1, 8)


def test_tables_must_be_arrays(target: Target) -> None:
    expected = "numpy.ndarray" if target is REFERENCE else "torch.Tensor"
    for name, value, kind in (
        ("seq_lens", [[3]], "list"),
        ("seq_lens", None, "NoneType"),
        ("seq_lens_padded", 4, "int"),
    ):
        with pytest.raises(TypeError, match=f"^{name} must be a {expected}, got {kind}$"):
            target.packed_layout(**arguments(**{name: value}))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tables_must_hold_values() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.tensor([[3, 2]])
    for wrong, kind in (
        (torch.zeros(1, 2, dtype=torch.int64, device="meta"), "a meta tensor, which holds no values"),
        (fake, "a fake tensor, which holds no values"),
        (table([[3, 2]]).to_sparse(), "a tensor of layout torch.sparse_coo"),
        (torch.nested.nested_tensor([table([3, 2])]), "a nested tensor"),
    ):
        for name in ("seq_lens", "seq_lens_padded"):
            with pytest.raises(TypeError) as caught:
                alignpack.packed_layout(**arguments(**{name: wrong}))
            assert str(caught.value) == f"{name} must be a plain dense tensor, got {kind}"


def test_integers_are_not_read_from_tensors() -> None:
    for value, shown in ((torch.tensor(4), "tensor(4)"), (torch.tensor(True), "tensor(True)")):
        with pytest.raises(TypeError) as caught:
            alignpack.packed_layout(**arguments(alignment=value))
        assert str(caught.value) == f"alignment must be an integer, got {shown}"


def test_types_come_before_values_and_values_before_documents(target: Target) -> None:
    wrong_document = {"seq_lens": table([[9, 2]])}
    with pytest.raises(TypeError, match="seq_lens_padded must be a"):
        target.packed_layout(**arguments(**wrong_document, alignment=0, seq_lens_padded=[[4, 4]]))
    with pytest.raises(ValueError, match="alignment must be"):
        target.packed_layout(**arguments(**wrong_document, alignment=0))
    with pytest.raises(ValueError, match="padded_sequence would be"):
        target.packed_layout(**arguments(**wrong_document, minimum_length=2**31))
