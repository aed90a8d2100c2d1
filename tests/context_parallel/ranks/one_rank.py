"""One rank of a launch: runs every check of the given files in order and writes down what became of each.

The checks of a file are its functions `check_...`; each gets a process group of its own, with all ranks in it, so that one
that fails does not spoil the next. `tests/context_parallel/test_ranks.py` starts the ranks and reads the results.
"""

import argparse
import json
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from alignpack_fuzz.lookup import load_file

TIMEOUT = timedelta(seconds=20)
"""Of every collective: a rank that waits for longer hangs, which is a failure."""

PASSED = "passed"

Check = Callable[[dist.ProcessGroup], None]


def checks_of(path: Path) -> dict[str, Check]:
    """The checks of a file by name, in its order."""
    return {name: value for name, value in vars(load_file(path)).items() if name.startswith("check_")}


def main() -> None:
    """Run the checks as one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where ranks meet, and where results go")
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = f"file://{options.folder}/rendezvous"
    dist.init_process_group("gloo", store, rank=options.rank, world_size=options.size, timeout=TIMEOUT)
    results: dict[str, str] = {}
    for path in options.files:
        for name, check in checks_of(path).items():
            group = dist.new_group(timeout=TIMEOUT)
            assert isinstance(group, dist.ProcessGroup)
            try:
                check(group)
                results[name] = PASSED
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever it is, it is this check's result
                results[name] = traceback.format_exc()
            # At once, because the next check may end the process.
            (options.folder / f"{options.rank}.json").write_text(json.dumps(results))
            dist.destroy_process_group(group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
