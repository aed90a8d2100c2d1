"""How the tests run: Hypothesis profiles, every implementation as a parameter, and which tests may start a process."""

import multiprocessing.util
import os
import subprocess
from collections.abc import Generator, Iterator

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

collect_ignore = ["mutants.py"]  # a script with an environment of its own: `make mutants`


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that starts a process, and so a compiler, unless it is marked `slow`: `make test-quick` runs the others."""

    def refuse(*args: object, **options: object) -> None:
        pytest.fail(f"{item.nodeid} starts a process, so it must be marked `slow`")

    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("slow") is None:
            patch.setattr(subprocess.Popen, "__init__", refuse)
            patch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
            patch.setattr(os, "fork", refuse)
            patch.setattr(os, "posix_spawn", refuse)
        return (yield)
