"""Compiled kernels on disk: found again, checked, and never a reason to fail.

Most tests stand for processes by compiling a real kernel anew: it then knows only what is on disk.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import numba
import pytest
from numba.core import caching

from alignpack._backends.numba_cpu import compiler, kernels
from alignpack._backends.numba_cpu.compile_cache import _CheckedFiles
from alignpack._backends.numba_cpu.compiler import host_kernel

PROGRAM = """
import torch, alignpack
layout = alignpack.packed_layout(torch.tensor([[3, 2]]), None, (1, 5), 4, backend="numba")
assert layout.pack(torch.arange(5).unsqueeze(0), backend="numba").tolist() == [[0, 1, 2, 0, 3, 4, 0, 0]]
from alignpack._backends.numba_cpu.kernels import gather_slots, scan_tables, write_layout
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in (write_layout, gather_slots, scan_tables)))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def new_process() -> Any:
    """The kernel as a new process has it."""
    original: Any = kernels.scan_tables
    return host_kernel(original.py_func)


def taken_from_disk(kernel: Any) -> bool:
    """Call it, and say where its code came from."""
    assert kernel(0, 0, 3, 0, 8, 4) == (-1, -1, 0)
    hits: int = sum(kernel.stats.cache_hits.values())
    misses: int = sum(kernel.stats.cache_misses.values())
    assert hits + misses == 1
    return hits == 1


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_kernel_is_found_again(folder: Path) -> None:
    assert not taken_from_disk(new_process())
    assert len(files(folder)) == 1
    assert taken_from_disk(new_process())


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garble(path: Path) -> None:
    path.write_bytes(b"\x80\x05garbage" * 1000)


def _flip_one_bit(path: Path) -> None:
    code = bytearray(path.read_bytes())
    code[len(code) // 2] ^= 1
    path.write_bytes(code)


def _flip_the_digest(path: Path) -> None:
    code = bytearray(path.read_bytes())
    code[0] ^= 1
    path.write_bytes(code)


@pytest.mark.parametrize("damage", [_truncate, _empty, _garble, _flip_one_bit, _flip_the_digest])
def test_a_damaged_file_is_replaced(folder: Path, damage: Callable[[Path], None]) -> None:
    assert not taken_from_disk(new_process())
    (path,) = files(folder)
    whole = path.read_bytes()
    damage(path)
    assert path.read_bytes() != whole
    assert not taken_from_disk(new_process())
    assert taken_from_disk(new_process())


@pytest.mark.parametrize("compiler", [numba, llvmlite])
def test_code_of_another_version_is_replaced(
    folder: Path, compiler: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "__version__", "0.0.1")
        assert not taken_from_disk(new_process())
        assert taken_from_disk(new_process())
    assert not taken_from_disk(new_process())
    assert len(files(folder)) == 1


def test_code_of_another_source_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(caching.UserProvidedCacheLocator, "get_source_stamp", lambda _: b"before the edit")
        assert not taken_from_disk(new_process())
    assert not taken_from_disk(new_process())


def test_code_of_other_options_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(compiler._OPTIONS, "error_model", "python")
        assert not taken_from_disk(new_process())
    assert not taken_from_disk(new_process())
    assert taken_from_disk(new_process())


def test_a_file_under_the_name_of_another_is_not_believed(folder: Path) -> None:
    stored = _CheckedFiles(folder / "kernel", "stamp")
    stored.save("one signature", 1)
    assert stored.load("one signature") == 1
    stored._path("one signature").rename(stored._path("another"))
    assert stored.load("another") is None


def test_a_directory_where_the_file_belongs(folder: Path) -> None:
    assert not taken_from_disk(new_process())
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    assert not taken_from_disk(new_process())
    assert files(folder) == []  # and nothing half-written is left


def test_a_directory_that_goes_away(folder: Path) -> None:
    kernel = new_process()
    (place,) = folder.iterdir()
    place.rmdir()
    place.write_text("a file now")
    assert not taken_from_disk(kernel)


def test_no_directory_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody can take the right to write from an administrator, so the file system refuses by itself.
    def refuse(_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    assert not taken_from_disk(new_process())
    assert not taken_from_disk(new_process())


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes(folder: Path) -> None:
    killed = f"import os, pathlib\npathlib.Path.replace = lambda *_: os._exit(9)\n{PROGRAM}"
    assert subprocess.run([sys.executable, "-c", killed], check=False, timeout=120).returncode == 9
    assert len(files(folder)) == 1  # unfinished
    assert not taken_from_disk(new_process())
    assert taken_from_disk(new_process())


@pytest.mark.slow
def test_processes_that_compile_at_once(folder: Path) -> None:
    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)

    for process in [start(), start()]:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert len(files(folder)) == 3
    assert start().communicate(timeout=120)[0] == "3\n"


@pytest.mark.slow
def test_a_cache_directory_that_cannot_be_made(folder: Path) -> None:
    (folder / "file").touch()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "file" / "below")}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=120, capture_output=True)


def test_another_numba_without_the_private_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alignpack._backends.numba_cpu.compile_cache", None)  # its import fails
    kernel = new_process()
    assert kernel(0, 0, 3, 0, 8, 4) == (-1, -1, 0)
    assert files(folder) == []
