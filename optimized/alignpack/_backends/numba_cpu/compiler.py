"""Functions compiled by Numba for the host."""

from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from alignpack._backends.forks import hold_over_forks

Kernel = Callable[..., Any]

hold_over_forks(global_compiler_lock)

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def host_kernel(function: Kernel) -> Kernel:
    """Compile a function for the host at its first call, or load it from disk; it runs without the interpreter lock.

    Numba tries these directories: `NUMBA_CACHE_DIR`, `__pycache__` beside the module, the user's cache. Without a writable
    one, every process compiles for itself.
    """
    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    try:
        from alignpack._backends.numba_cpu.compile_cache import checked_cache

        dispatcher._cache = checked_cache(function, _OPTIONS)
    except (ImportError, AttributeError):
        # The cache uses private names of Numba; where one is missing, every process compiles for itself too.
        pass
    kernel: Kernel = dispatcher
    return kernel
