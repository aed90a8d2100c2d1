"""How the tests run: Hypothesis profiles, and every implementation as a parameter."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from alignpack_fuzz.targets import BACKENDS, REFERENCE, Target

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
