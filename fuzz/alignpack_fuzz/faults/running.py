"""Running the laws against every deliberate fault."""

import random
import time
from collections.abc import Iterator

from alignpack_fuzz.faults import FAULTS
from alignpack_fuzz.faults.wrapping import Fault
from alignpack_fuzz.laws import LAWS, Law
from alignpack_fuzz.runner import Run, check
from alignpack_fuzz.targets import Target, find_target

EXAMPLES = 300
"""Within so many examples of one law, each fault must be found."""


def run_faults(examples: int | None, seed: int | None) -> bool:
    """Run the laws against each fault and print which law found it; says whether all were found."""
    seed = random.randrange(2**32) if seed is None else seed
    right = find_target("alignpack")
    width = max(map(len, FAULTS))
    start, missed = time.monotonic(), 0
    print(f"{len(FAULTS)} faults, seed {seed}\n{'fault':{width}}  {'found by':34}  examples  seconds", flush=True)
    for fault in FAULTS.values():
        run = find(fault, right, examples or EXAMPLES, seed)
        if run.error is None:
            missed += 1
            print(f"{fault.name:{width}}  NOT FOUND: {fault.sentence}", flush=True)
        else:
            print(f"{fault.name:{width}}  {run.law.name:34}  {run.found_after:8}  {run.seconds:7.2f}", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} faults found in {time.monotonic() - start:.0f} s")
    return missed == 0


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
