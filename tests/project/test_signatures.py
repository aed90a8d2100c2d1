"""The reference and the library read the same: names, order, defaults and kinds of every shared parameter."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import alignpack
import alignpack_reference
from alignpack.context_parallel import packed_length

ONLY_TORCH = {"device", "backend"}
"""Parameters of the library that mean nothing without PyTorch."""

LAYOUTS = alignpack.PackedSequenceLayout, alignpack_reference.PackedSequenceLayout
METHODS = ("pack", "restore", "groups", "shard", "shift", "__getitem__")
FUNCTIONS = ("packed_layout", "compression_alignment")


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)
    return [(name, each.kind, each.default) for name, each in signature.parameters.items() if name not in ONLY_TORCH]


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_layouts(name: str) -> None:
    library, reference = (parameters(getattr(layout, name)) for layout in LAYOUTS)
    assert library == reference
    assert len(reference) > 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    library, reference = (parameters(getattr(package, name)) for package in (alignpack, alignpack_reference))
    assert library == reference
    assert reference


def test_the_packed_length_takes_what_the_layout_takes() -> None:
    assert parameters(packed_length) == parameters(alignpack.packed_layout)


@pytest.mark.parametrize("name", ["PackedSequenceLayout", "CompressionGroups"])
def test_fields(name: str) -> None:
    library, reference = (parameters(getattr(package, name)) for package in (alignpack, alignpack_reference))
    assert library == reference
    assert len(reference) > 5


def test_both_packages_export_the_contract() -> None:
    shared = {"CompressionGroups", "LayoutError", "PackedSequenceLayout", "compression_alignment", "packed_layout"}
    assert shared == set(alignpack.__all__) & set(alignpack_reference.__all__)
