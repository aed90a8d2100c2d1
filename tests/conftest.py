"""How the tests run: Hypothesis profiles, every implementation as a parameter, and which folders this process can run.

Numba simulates CUDA in a process or does not, and compiles for it only where Numba-CUDA is installed: `make test` and
`make test-cuda` start a process of its own for each of the two folders.
"""

import importlib.util
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from alignpack_fuzz.targets import BACKENDS, REFERENCE, Target

_simulating = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"
_compiling = importlib.util.find_spec("numba_cuda") is not None and not _simulating
collect_ignore = [folder for folder, runs in {"simulator": _simulating, "cuda": _compiling}.items() if not runs]

# Explicit, because under CI Hypothesis would neither draw new examples nor keep the failing ones.
_common = settings(
    deadline=None, derandomize=False, database=DirectoryBasedExampleDatabase(".hypothesis/examples"), print_blob=True
)
settings.register_profile("default", _common, max_examples=40)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Module scope: Hypothesis refuses narrower fixtures, because it runs a test many times with one of them.
@pytest.fixture(scope="module", params=[REFERENCE, *BACKENDS], ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Every implementation, the reference too."""
    with request.param.active():
        yield request.param


@pytest.fixture(scope="module", params=BACKENDS, ids=lambda target: target.name)
def fast(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Every backend of `alignpack`."""
    with request.param.active():
        yield request.param
