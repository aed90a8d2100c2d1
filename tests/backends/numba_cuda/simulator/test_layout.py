"""The layout kernel: all four fields from tables of every kind, and nothing beside them."""

from typing import Any

import pytest
import torch

import alignpack
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._inputs.tables import read_tables
from alignpack_fuzz.cases import Tables
from alignpack_fuzz.compare import FIELDS, assert_same_bits
from alignpack_fuzz.simulator import Simulator

CASES = {
    "documents and gaps": Tables(
        torch.tensor([[3, 2, 4], [1, 1, 1]]), torch.tensor([[4, 2, 5], [1, 6, 1]]), (2, 12), 4
    ),
    "absent documents in all places": Tables(
        torch.tensor([[0, 3, -1000, 0, 5, -1000]]), torch.tensor([[-1000, 4, 0, 0, 5, 0]]), (1, 9), 4
    ),
    "nothing present": Tables(torch.tensor([[0, -1000], [0, 0]]), None, (2, 3), 4),
    "no documents": Tables(torch.zeros(2, 0, dtype=torch.int64), None, (2, 3), 4),
    "no slots": Tables(torch.zeros(3, 1, dtype=torch.int64), None, (3, 0), 4),
    "no rows": Tables(torch.zeros(0, 2, dtype=torch.int64), None, (0, 7), 4),
    "longer packed rows": Tables(torch.ones(1, 9, dtype=torch.int32), None, (1, 9), 7, 100),
    "many documents": Tables(torch.tensor([[1, 2, 3, 0] * 16]), None, (1, 100), 3),
    "more rows than blocks": Tables(torch.arange(7).reshape(7, 1), None, (7, 6), 2),
}


def build(tables: Tables) -> Any:
    read = read_tables(
        tables.seq_lens, tables.seq_lens_padded, tables.input_shape, tables.alignment, tables.minimum_length, None
    )
    return numba_cuda.build_fields(read, torch.device("cpu"))


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
def test_fields(tables: Tables, simulator: Simulator) -> None:
    for name, field in zip(FIELDS, build(tables), strict=True):
        assert_same_bits(field, getattr(tables.reference, name))
    assert len(simulator.launches) == (tables.input_shape[0] > 0)


def test_the_whole_grid(whole: Simulator) -> None:
    tables = CASES["documents and gaps"]
    for name, field in zip(FIELDS, build(tables), strict=True):
        assert_same_bits(field, getattr(tables.reference, name))


def test_refusals_launch_nothing(simulator: Simulator) -> None:
    with pytest.raises(alignpack.LayoutError, match="row 1, document 0"):
        build(Tables(torch.tensor([[3], [9]]), None, (2, 8), 4))
    assert not simulator.launches
