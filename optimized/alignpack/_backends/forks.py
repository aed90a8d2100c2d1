"""What a fork waits for, so that forked workers can use Numba whatever other threads were doing.

A forked process has one thread. A lock that another thread held at that moment stays locked for ever, and so does a module that
another thread was importing. Forks therefore wait until no thread imports Numba for this library, and none compiles.
"""

import os
import threading
from typing import Protocol


class Lock(Protocol):
    """Reentrant: the thread that forks may hold it."""

    def acquire(self) -> object:
        """Wait for it."""

    def release(self) -> object:
        """Give it back."""


# Held while Numba and the kernels are imported.
IMPORTING = threading.RLock()

_locks: list[Lock] = [IMPORTING]


def hold_over_forks(lock: Lock) -> None:
    """Let forks wait for one more lock; call it under `IMPORTING`."""
    _locks.append(lock)


def _acquire() -> None:
    for lock in _locks:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
