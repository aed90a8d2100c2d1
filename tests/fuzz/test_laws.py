"""The laws, on every implementation: random cases, and the cases that once broke one."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from alignpack_fuzz.cases import FillCase, Grouping, Move, RowSlice, Sharding, Shifting, Tables
from alignpack_fuzz.laws import LAWS, Law
from alignpack_fuzz.payloads import Payload
from alignpack_fuzz.targets import REFERENCE, Target

# What the reference promises beyond the core.
REFERENCE_LAWS = [*(law for law in LAWS.values() if law.group == "core"), LAWS["shards_make_the_whole"]]
REFERENCE_LAWS += [LAWS[name] for name in ("every_dtype_is_moved", "row_slices_are_those_rows", "runs_repeat")]
REFERENCE_LAWS += [law for law in LAWS.values() if law.check.__module__.endswith((".groups", ".shifts"))]


def hold(law: Law, target: Target) -> None:
    def holds(case: Any) -> None:
        law.check(target, case)

    # Hypothesis keeps failing examples under the name.
    holds.__name__ = holds.__qualname__ = f"{law.name}_{type(target).__name__}"
    given(case=law.cases)(holds)()


@pytest.mark.parametrize("law", LAWS.values(), ids=lambda law: law.name)
def test_backends_keep_every_law(law: Law, fast: Target) -> None:
    hold(law, fast)


@pytest.mark.parametrize("law", REFERENCE_LAWS, ids=lambda law: law.name)
def test_the_reference_keeps_its_laws(law: Law) -> None:
    hold(law, REFERENCE)


INT64 = torch.int64
NO_ROWS = Tables(torch.zeros(0, 0, dtype=INT64), None, (0, 0), 3)
NO_SLOTS = Tables(torch.tensor([[0, -1000], [-1000, 0]], dtype=torch.int32), None, (2, 0), 3, 4)
ONE_SLOT = Tables(torch.tensor([[1]]), None, (1, 1), 2)


def move(tables: Tables, dtype: torch.dtype, *trailing: int, strides: Any = "contiguous") -> Move:
    payloads = (Payload(strides, (*shape, *trailing), dtype, 1) for shape in (tables.input_shape, tables.packed_shape))
    return Move(tables, *payloads)


FOUND = [
    # An empty complex tensor cannot be viewed as words, nor words as an empty complex tensor.
    ("every_dtype_is_moved", move(NO_ROWS, torch.complex128, 0)),
    ("every_dtype_is_moved", move(NO_SLOTS, torch.complex128)),
    ("gradients_are_adjoint", move(NO_ROWS, torch.complex128, 0)),
    # Nothing to gather from: clamping an index to 0 would read slot 0 of no slots.
    ("values_are_moved", move(NO_SLOTS, torch.float32, 3)),
    ("values_are_moved", move(NO_SLOTS, torch.float32)),
    ("fields_are_right", NO_ROWS),
    ("fields_are_right", NO_SLOTS),
    # NumPy finds np.float64(2.0**63) equal to 2**63 - 1.
    *(("fills_are_exact_or_refused", FillCase(dtype, (fill,))) for dtype, fill in [
        (torch.int64, np.float64(2.0**63)),
        (torch.uint64, np.float64(2.0**64)),
        (torch.float32, np.longdouble("1e400")),
        (torch.float16, 1 + 2**-11 + 2**-40),
    ]),
    # Sums that wrap to 0, or stay in range only before the first fault.
    ("faults_are_placed", Tables(torch.tensor([[2**62] * 4]), None, (1, 8), 4)),
    ("faults_are_placed", Tables(torch.tensor([[0, 0]]), torch.tensor([[0, 2**63 - 1]]), (1, 0), 1)),
    # A shard takes few slots of many, by another way than a whole row.
    ("shards_make_the_whole", Sharding(
        Tables(torch.tensor([[3, 5]]), None, (1, 64), 4, 0, 16), 4, Payload("every second", (1, 64), INT64, 1)
    )),
    ("row_slices_are_those_rows", RowSlice(NO_ROWS, slice(None, None, 2))),
    # No rows have groups, too; no slots have nothing to shift.
    *((name, Grouping(NO_ROWS, 3, 1, 1)) for name in ("groups_are_right", "groups_of_shards_are_columns")),
    *((name, Shifting(NO_SLOTS, k, 1, 1, 0)) for name in ("shifts_are_right", "shifts_compose") for k in (-1, 2**64)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "case"), FOUND)
def test_what_was_found_stays_mended(name: str, case: Any, fast: Target) -> None:
    LAWS[name].check(fast, case)
