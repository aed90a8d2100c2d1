"""Compiled kernels on disk, one checked file for each kernel and signature.

Numba's own cache trusts its files, its index can be wrong when two processes write at once, and it fails without a writable
directory. Here a digest covers the code, Numba's version, the options and the key; files are replaced in one step.
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
    """A cache for Numba of a function that is compiled with these options; without a writable directory it stays empty."""
    try:
        return _CheckedCache(function, options)
    except RuntimeError:
        return NullCache()


class _CheckedCache(FunctionCache):
    """Numba's cache of one function over `_CheckedFiles`; errors of the file system count as misses."""

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
        """Save it, if the directory can be written."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _CheckedFiles:
    """One file per key of a function: the digest, then the pickled code."""

    def __init__(self, base: Path, stamp: object) -> None:
        self.base = base
        self.stamp = stamp

    def load(self, key: object) -> Any:
        """What was saved under the key; None if it is damaged or stale."""
        code = self._path(key).read_bytes()
        size = hashlib.sha256().digest_size
        return pickle.loads(code[size:]) if code[:size] == self._digest(key, code[size:]) else None

    def save(self, key: object, data: Any) -> None:
        """Replace what was saved under the key."""
        code = dumps(data)
        path = self._path(key)
        # A process killed in between leaves a temporary file that is never read.
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
