"""The example of compressed attention between real processes, over gloo."""

from functools import cache

import pytest
from tests.parallel.launching import FOLDER, failures, launch
from tests.parallel.ranks import checks_of

PATH = FOLDER / "compressed_attention.py"
SIZES = [2, 4, pytest.param(8, marks=pytest.mark.nightly)]


@cache
def launched(size: int) -> tuple[list[dict[str, str]], list[int]]:
    return launch(size, [PATH])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", checks_of(PATH))
def test_ranks(check: str, size: int) -> None:
    results, _ = launched(size)
    if found := failures(results, check):
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_leave_in_order(size: int) -> None:
    _, statuses = launched(size)
    assert statuses == [0] * size
