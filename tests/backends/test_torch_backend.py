"""The torch backend has two ways to build a layout, and takes the faster: both must say the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alignpack import LayoutError
from alignpack._backends import torch_backend
from alignpack._backends.interface import LayoutFields
from alignpack._backends.torch_backend import BACKEND, build_fields
from alignpack._inputs.tables import read_tables
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.compare import assert_same_bits
from alignpack_fuzz.strategies import corrupted_tables, tables

CPU = torch.device("cpu")


def built(case: Tables, most: int) -> LayoutFields | tuple[type[Exception], str]:
    """The fields, or the refusal, where `most` documents are written one by one."""
    try:
        read = read_tables(
            case.seq_lens,
            case.seq_lens_padded,
            case.input_shape,
            case.alignment,
            case.minimum_length,
            case.length_multiple,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch_backend, "_FEW_DOCUMENTS", most)
            return build_fields(read, CPU)
    except (LayoutError, TypeError, ValueError) as error:
        return type(error), str(error)


@given(st.one_of(tables(), corrupted_tables()))
def test_both_ways_build_the_same_fields_and_refuse_the_same(case: Tables) -> None:
    one_by_one, at_once = built(case, 10**6), built(case, -1)
    if isinstance(one_by_one, LayoutFields) and isinstance(at_once, LayoutFields):
        for mine, other in zip(one_by_one, at_once, strict=True):
            assert_same_bits(mine, other)
    else:
        assert one_by_one == at_once


@pytest.mark.parametrize(("documents", "one_by_one"), [(64, True), (65, False)])
def test_few_documents_are_written_one_by_one(
    documents: int, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch_backend, "_look_up_runs" if one_by_one else "_write_documents")
    read = read_tables(torch.ones(1, documents, dtype=torch.int64), None, (1, documents), 4, 0, None)
    assert BACKEND.build_fields(read, CPU).sequence_ids.max() == documents
