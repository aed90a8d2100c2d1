"""The cases of the README that need two ranks; the checks stand in `tests/context_parallel/ranks/conformance.py`."""

import pytest

from tests.context_parallel.ranks.launching import failures, launched

pytestmark = pytest.mark.slow

Results = list[dict[str, str]]


@pytest.fixture(scope="module")
def results() -> Results:
    return launched(2)[0]


@pytest.mark.case("F1")
def test_gathered_columns_stand_in_the_order_of_the_ranks(results: Results) -> None:
    assert not failures(results, "check_gathered_columns_stand_in_the_order_of_the_ranks")


@pytest.mark.case("F5")
def test_unequal_widths_are_refused_on_every_rank(results: Results) -> None:
    assert not failures(results, "check_unequal_widths_are_refused_on_every_rank")


@pytest.mark.case("F6")
def test_remote_uses_are_summed(results: Results) -> None:
    assert not failures(results, "check_remote_uses_are_summed")


@pytest.mark.case("F8")
def test_a_rank_of_padding_joins_with_zero_gradients(results: Results) -> None:
    assert not failures(results, "check_a_rank_of_padding_joins_with_zero_gradients")
