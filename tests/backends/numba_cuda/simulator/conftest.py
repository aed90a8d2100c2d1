"""Numba's simulator in the GPU's place."""

from collections.abc import Iterator

import pytest

from alignpack._backends.numba_cuda.launch import launching_with
from alignpack_fuzz.simulator import SimulatedTarget, Simulator, simulated_target


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """What launches, and what it launched."""
    simulator = Simulator()
    with launching_with(simulator):
        yield simulator


@pytest.fixture
def whole() -> Iterator[Simulator]:
    """The same with grids and blocks as they are told, every thread of them."""
    simulator = Simulator(largest=None)
    with launching_with(simulator):
        yield simulator


@pytest.fixture(scope="module")
def simulated() -> Iterator[SimulatedTarget]:
    """The simulated backend behind the public interface."""
    target = simulated_target()
    with target.active():
        yield target
