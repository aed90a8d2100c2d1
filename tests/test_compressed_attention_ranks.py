"""The example of compressed attention between real processes, over gloo."""

import pytest

from tests.parallel.launching import FOLDER, SIZES, failures, launched
from tests.parallel.ranks import checks_of

PATH = FOLDER / "compressed_attention.py"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", checks_of(PATH))
def test_ranks(check: str, size: int) -> None:
    results, _ = launched(size, PATH)
    if found := failures(results, check):
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_leave_in_order(size: int) -> None:
    _, statuses = launched(size, PATH)
    assert statuses == [0] * size
