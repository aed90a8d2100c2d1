"""`python -m tests.faults`: check the laws against every deliberate fault and print which law finds it."""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence

from alignpack_fuzz.checking import Run, check
from alignpack_fuzz.laws import LAWS, Law
from alignpack_fuzz.lookup import find_target
from alignpack_fuzz.targets import Target
from tests.faults import FAULTS
from tests.faults.wrapping import Fault

EXAMPLES = 300
"""Examples of one law, within which each fault must be found."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 all found, 1 one missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help=f"examples per law, default {EXAMPLES}")
    parser.add_argument("--seed", type=int, help="of the examples; default: a new one, which is printed")
    options = parser.parse_args(arguments)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    right = find_target("alignpack")
    width = max(map(len, FAULTS))
    start, missed = time.monotonic(), 0
    print(f"{len(FAULTS)} faults, seed {seed}\n{'fault':{width}}  {'found by':34}  examples  seconds", flush=True)
    for fault in FAULTS.values():
        run = find(fault, right, options.examples, seed)
        if run.error is None:
            missed += 1
            print(f"{fault.name:{width}}  NOT FOUND: {fault.sentence}", flush=True)
        else:
            print(f"{fault.name:{width}}  {run.law.name:34}  {run.found_after:8}  {run.seconds:7.2f}", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} faults found in {time.monotonic() - start:.0f} s")
    return 1 if missed else 0


def find(fault: Fault, right: Target, examples: int, seed: int) -> Run:
    """The run of the first law that finds a fault, or of the last that does not."""
    for law in _laws_for(fault):
        run = check(law, fault.wrap(right), examples=examples, seed=seed, shrink=False)
        if run.error is not None:
            break
    return run


def _laws_for(fault: Fault) -> Iterator[Law]:
    """First the laws that are there for such faults, then the others that a fault of this group must break."""
    yield from (LAWS[name] for name in fault.found_by)
    yield from (law for law in LAWS.values() if law.name not in fault.found_by and fault.group in ("strict", law.group))


if __name__ == "__main__":
    sys.exit(main())
