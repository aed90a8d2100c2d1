"""Laws of running more than once, and more than one at a time."""

from concurrent.futures import ThreadPoolExecutor

import torch

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    Move,
)
from alignpack_fuzz.compare import (
    FIELDS,
    assert_same_bits,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import Target


@law("strict", strategies.moves(strategies.CORE_FLOATS))
def runs_repeat(target: Target, case: Move) -> None:
    """Two runs give the same bits, forward and backward: catches unwritten memory and sums in changing order."""

    def run() -> list[torch.Tensor]:
        layout = case.tables.build(target)
        moved = [layout.pack(case.values), layout.restore(case.packed)]
        moved += [target.pack_gradient(layout, case.packed), target.restore_gradient(layout, case.values)]
        return [*moved, *(getattr(layout, name) for name in FIELDS)]

    for first, second in zip(run(), run(), strict=True):
        assert_same_bits(first, second)


_THREADS = ThreadPoolExecutor(4)


@law("strict", strategies.moves((torch.int64, torch.float32)))
def threads_do_not_meet(target: Target, case: Move) -> None:
    """One layout packed from several threads gives what one thread gets: catches scratch memory that is shared."""
    layout, reference = case.tables.build(target), case.tables.reference
    packed, restored = reference.pack(case.values), reference.restore(case.packed)
    jobs = [_THREADS.submit(layout.pack, case.values) for _ in range(4)]
    jobs += [_THREADS.submit(layout.restore, case.packed) for _ in range(4)]
    for number, job in enumerate(jobs):
        assert_same_bits(job.result(), packed if number < 4 else restored)
