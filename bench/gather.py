"""What `gather_sequence` costs between ranks on the CPU, beside PyTorch's own differentiable all-gather.

    python bench/gather.py --ranks 2

Medians of calls that take turns, over gloo with one thread per rank. Results are compared first.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.nn.functional import all_gather

from alignpack.context_parallel import gather_sequence

SMALL, LARGE = (1, 8, 16), (1, 4096, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(run, (ranks, Path(folder, "store").as_uri()), nprocs=ranks)  # type: ignore[attr-defined,no-untyped-call]


def run(rank: int, ranks: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    group = dist.group.WORLD
    small = torch.randn(SMALL)
    assert torch.equal(gather_sequence(small, group), peer(small))
    calls = {
        "peer": lambda: peer(small),
        "check=False": lambda: gather_sequence(small, group, check=False),
        "check=True": lambda: gather_sequence(small, group),
    }
    show(rank, f"forward {list(SMALL)} float32", medians(calls, 500), baseline="check=False")
    for dtype in (torch.bfloat16, torch.float32):
        large = torch.randn(LARGE).to(dtype).requires_grad_()
        gathered, theirs = gather_sequence(large, group), peer(large)
        upstream = torch.randn(gathered.shape).to(dtype)
        torch.testing.assert_close(gradient(gathered, large, upstream), gradient(theirs, large, upstream))
        backward = {
            "peer": partial(gradient, theirs, large, upstream),
            "ours": partial(gradient, gathered, large, upstream),
        }
        show(rank, f"backward {list(LARGE)} {dtype}", medians(backward, 25), baseline="peer")
    dist.barrier()
    dist.destroy_process_group()


def peer(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat(all_gather(tensor), dim=1)


def gradient(whole: torch.Tensor, local: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(whole, local, upstream, retain_graph=True)[0]


def medians(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds per call, by name."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def show(rank: int, title: str, seconds: dict[str, float], baseline: str) -> None:
    if rank == 0:
        print(title)
        for name, found in seconds.items():
            print(f"    {name:12} {found * 1e6:10,.0f} us   {found / seconds[baseline]:5.2f} x {baseline}")


if __name__ == "__main__":
    main()
