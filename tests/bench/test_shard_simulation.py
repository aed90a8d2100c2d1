"""The simulation of shards: its counts on rows that can be counted by hand."""

from types import ModuleType

import pytest
import torch

from alignpack_fuzz.lookup import load_file
from tests.paths import ROOT


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    return load_file(ROOT / "bench" / "shard_simulation.py")


def test_rows_are_full(simulation: ModuleType) -> None:
    tables = simulation.fill_rows([3, 5, 9], rows=6, row_length=20)
    assert tables.sum(1).tolist() == [20] * 6
    assert len({tuple(row) for row in tables.tolist()}) > 1
    for row in tables.tolist():
        documents = [length for length in row if length]
        assert set(documents[:-1]) <= {3, 5, 9}
        assert documents[-1] <= 9


def test_counts_of_each_rank(simulation: ModuleType) -> None:
    # Rows of 12 and of 8 slots in rows of 16: a a a . b b b b b . . . . . . .   c c c c d . . . . . . . . . . .
    tables = torch.tensor([[3, 5], [4, 1]])
    (line,) = simulation.simulate(tables, 8, [4], [4])
    assert (line.alignment, line.size, line.slots) == (4, 4, 4)
    assert line.nbytes == 2 * 4 * (4 * 8 + 1)
    assert line.real == 13 / 32
    assert (line.worst, line.worst_rank) == (0, 3)
    assert simulation.markdown([line]).splitlines()[2] == "| 4 | 4 | 4 | 0.0 | 40.62% | 0.00% | 3 |"
