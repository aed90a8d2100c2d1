"""How the tests run: Hypothesis profiles, and every implementation as a parameter."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from alignpack_fuzz.targets import TARGETS, AlignpackTarget, Target

# Explicit, because under CI Hypothesis would neither draw new examples nor keep the failing ones.
_common = settings(
    deadline=None, derandomize=False, database=DirectoryBasedExampleDatabase(".hypothesis/examples"), print_blob=True
)
settings.register_profile("default", _common, max_examples=100)
settings.register_profile("fuzz", _common, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _forced(target: Target) -> Iterator[Target]:
    """The target, with the environment saying that its backend moves the values too, not only builds the layout."""
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(target, AlignpackTarget):
            patch.setenv("ALIGNPACK_BACKEND", target.backend)
        yield target


# Module scope: Hypothesis refuses narrower fixtures, because it runs a test many times with one of them.
@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Every implementation, the reference too."""
    yield from _forced(request.param)


@pytest.fixture(scope="module", params=[t for t in TARGETS if isinstance(t, AlignpackTarget)], ids=lambda t: t.name)
def fast(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Every backend of `alignpack`."""
    yield from _forced(request.param)
