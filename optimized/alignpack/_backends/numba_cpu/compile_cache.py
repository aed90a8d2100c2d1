"""Compiled kernels on disk.

Numba's own cache believes its files: a damaged one fails with whatever unpickling raises, or runs; its index can name
the machine code of another signature when two processes write at once; and without a writable directory decorating a
function is an error. Here every kernel and signature has one file, whose digest covers the code, Numba's version, the
options and the key; it is replaced in one step, and what does not match is compiled again.
"""

import contextlib
import hashlib
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache, NullCache
from numba.core.serialize import dumps


def checked_cache(function: Callable[..., Any], options: object) -> Any:
    """What Numba takes as the cache of a function that is compiled with these options.

    It keeps nothing where no directory can be written.
    """
    try:
        return _CheckedCache(function, options)
    except RuntimeError:
        return NullCache()


class _CheckedCache(FunctionCache):
    """Numba's cache of one function over `_CheckedFiles`; a file system that fails is no failure of the kernel."""

    def __init__(self, function: Callable[..., Any], options: object) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = (self._impl.locator.get_source_stamp(), numba.__version__, llvmlite.__version__, options)
        self._cache_file: Any = _CheckedFiles(Path(self._cache_path, self._impl.filename_base), stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None."""
        with contextlib.suppress(OSError):
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it, if the directory lets us."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _CheckedFiles:
    """One file for each key of a function: the digest, then the pickled code."""

    def __init__(self, base: Path, stamp: object) -> None:
        self.base = base
        self.stamp = stamp

    def load(self, key: object) -> Any:
        """What was saved under the key, None if it is damaged or stale.

        Raises:
            OSError: there is nothing, or it cannot be read.
        """
        code = self._path(key).read_bytes()
        size = hashlib.sha256().digest_size
        return pickle.loads(code[size:]) if code[:size] == self._digest(key, code[size:]) else None

    def save(self, key: object, data: Any) -> None:
        """Replace what was saved under the key."""
        code = dumps(data)
        path = self._path(key)
        # Whoever is killed in between leaves a file that nobody reads.
        unfinished = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
        try:
            unfinished.write_bytes(self._digest(key, code) + code)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def _path(self, key: object) -> Path:
        return self.base.with_name(f"{self.base.name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc")

    def _digest(self, key: object, code: bytes) -> bytes:
        return hashlib.sha256(repr((self.stamp, key)).encode() + code).digest()
