"""Changes a module in a clone, one place at a time, and counts the changes that a test notices: `make mutants MODULE=...`."""

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT = Path(__file__).resolve().parent.parent
QUICK = "-m 'not slow and not nightly'"
LAWS = "{python} -m alignpack_fuzz --examples 15 --seed 1"
JUDGES = {  # the first start of the module's path that matches says what must notice the change
    "optimized/alignpack/context_parallel.py": "{pytest} tests/context_parallel",
    "optimized/alignpack/_distributed": "{pytest} tests/context_parallel",
    "optimized/alignpack/_backends/numba_cuda": "NUMBA_ENABLE_CUDASIM=1 {pytest} tests/backends "
    "--ignore tests/backends/numba_cuda/simulator/test_gpu_check.py",
    "optimized/alignpack/_backends/numba_cpu/compile": "{pytest} tests/backends/numba_cpu",
    "optimized/alignpack/_compiled.py": "{pytest} tests/gather tests/backends/test_selection.py",
    "optimized": f"{{pytest}} {QUICK} tests/layout tests/inputs tests/groups tests/gather tests/backends "
    f"tests/conformance/test_layouts.py && {LAWS}",
    "reference": f"{{pytest}} {QUICK} tests/layout tests/inputs tests/groups tests/conformance && {LAWS}",
    "fuzz": "{pytest} tests/fuzz tests/faults",
}


def judge(module: str, python: str) -> str:
    """The shell command that fails for a mutant that is noticed."""
    command = next((command for start, command in JUDGES.items() if module.startswith(start)), None)
    if command is None:
        raise SystemExit(f"MODULE is {module!r}; it must be a file in optimized, reference or fuzz")
    command = command.format(python=python, pytest=f"{python} -m pytest -x -q -p no:cacheprovider")
    return f"PYTHONPATH=optimized:reference:fuzz; export PYTHONPATH; {command}"


def draw(session: WorkDB, count: int, seed: int) -> None:
    """Leave `count` of the mutants to be run."""
    mutants = sorted(
        session.pending_work_items, key=lambda item: (item.mutations[0].start_pos, item.mutations[0].operator_name)
    )
    others = random.Random(seed).sample(mutants, max(0, len(mutants) - count))
    session.set_multiple_results([item.job_id for item in others], WorkResult(worker_outcome=WorkerOutcome.SKIPPED))


def main() -> None:
    """Print the survivors, each as a difference, and the share that was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="a file, such as optimized/alignpack/_gather.py")
    parser.add_argument("--mutants", type=int, default=25, help="how many to draw")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    command = judge(options.module, str(ROOT / ".venv/bin/python"))

    clone = ROOT / "build" / "mutants" / options.module.replace("/", "-")
    subprocess.run(["rm", "-rf", str(clone)], check=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    config = clone / "mutants.toml"
    config.write_text(  # a JSON string is a TOML string too
        f"[cosmic-ray]\nmodule-path = {json.dumps(options.module)}\ntimeout = 300.0\nexcluded-modules = []\n"
        f"test-command = {json.dumps('sh -c ' + shlex.quote(command))}\n[cosmic-ray.distributor]\nname = 'local'\n"
    )

    def run(*arguments: str) -> None:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(clone / "build/numba")}
        subprocess.run(
            [str(Path(sys.executable).with_name("cosmic-ray")), *arguments], cwd=clone, env=environment, check=True
        )

    print(f"unchanged code first: {command}", flush=True)
    run("baseline", str(config))
    run("init", str(config), str(clone / "mutants.sqlite"))
    with use_db(str(clone / "mutants.sqlite"), WorkDB.Mode.open) as session:
        draw(session, options.mutants, options.seed)
    run("exec", str(config), str(clone / "mutants.sqlite"))
    with use_db(str(clone / "mutants.sqlite"), WorkDB.Mode.open) as session:
        results = [result for _, result in session.results if result.worker_outcome != WorkerOutcome.SKIPPED]
    survivors = [result for result in results if result.test_outcome == TestOutcome.SURVIVED]
    for result in survivors:
        print(result.diff)
    print(f"{len(results) - len(survivors)} of {len(results)} mutants noticed")


if __name__ == "__main__":
    main()
