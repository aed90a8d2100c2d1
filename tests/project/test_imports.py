"""What an import brings with it, each in a fresh interpreter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import alignpack


def loaded_by(module: str) -> set[str]:
    """The top-level modules that importing the module loads."""
    program = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()}


@pytest.mark.slow
def test_the_reference_loads_neither_torch_nor_numba() -> None:
    loaded = loaded_by("alignpack_reference")
    assert "numpy" in loaded
    assert not loaded & {"torch", "numba", "hypothesis", "alignpack"}


@pytest.mark.slow
def test_alignpack_loads_neither_numba_nor_hypothesis() -> None:
    loaded = loaded_by("alignpack")
    assert "torch" in loaded
    assert not loaded & {"numba", "hypothesis", "alignpack_fuzz"}


@pytest.mark.slow
def test_calls_do_not_load_the_compiler() -> None:
    program = """
import sys, torch, alignpack
layout = alignpack.packed_layout(torch.tensor([[3]]), None, (1, 3), 4)
layout.restore(layout.pack(torch.ones(1, 3, 2, requires_grad=True))).sum().backward()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_alignpack_imports_only_the_errors_of_the_reference() -> None:
    """The linter bans the names it knows; this finds any other way in."""
    imported: set[str] = set()
    for path in Path(alignpack.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names if alias.name.startswith("alignpack_reference")}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("alignpack_reference"):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert imported == {"alignpack_reference.errors", "alignpack_reference.errors.LayoutError"}
