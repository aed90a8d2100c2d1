"""Python threads over kernels that run without the interpreter lock."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

PARALLEL_BYTES = 2**23
"""Output from this many bytes on is written by several threads; at 2 MiB they cost more than they saved."""

T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None
_one_at_a_time = threading.Lock()


def run_in_threads(
    output_bytes: int, count: int, kernel: Callable[..., T], arguments: tuple[int, ...], memory: object
) -> list[T]:
    """Call `kernel(*arguments, first, last)` over the parts of `range(count)`, one for each thread PyTorch may use.

    Args:
        output_bytes: decides whether threads are worth their cost.
        count: rows or slots to divide among threads.
        kernel: releases the interpreter lock.
        arguments: addresses and integers.
        memory: the owners of the memory behind the addresses. Every part holds them, because the caller may be
            interrupted and return before the last part ends.

    Returns:
        The results of the calls, in the order of the parts.
    """
    if output_bytes < PARALLEL_BYTES or (parts := min(torch.get_num_threads(), count)) < 2:
        return [kernel(*arguments, 0, count)]

    def run(part: int, _: object = memory) -> T:
        return kernel(*arguments, count * part // parts, count * (part + 1) // parts)

    pool = _get_pool()
    others: list[Future[T]] = []
    with contextlib.suppress(RuntimeError):  # an interpreter that is shutting down starts no threads
        others.extend(pool.submit(run, part) for part in range(1, parts))
    return [run(0), *(other.result() for other in others), *map(run, range(1 + len(others), parts))]


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _one_at_a_time:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="alignpack")
        return _pool


def _forget_pool() -> None:
    global _pool, _one_at_a_time
    _pool, _one_at_a_time = None, threading.Lock()  # another thread may have made it meanwhile


if hasattr(os, "register_at_fork"):  # not on Windows
    # Threads do not survive a fork.
    os.register_at_fork(after_in_child=_forget_pool)
