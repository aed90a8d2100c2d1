"""Laws of where documents stand, and of what is refused before anything stands anywhere."""

import math

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    Tables,
    WrongArguments,
)
from alignpack_fuzz.compare import (
    assert_same_fields,
    described,
    outcome,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import REFERENCE, Target


@law("core", strategies.tables())
def fields_are_right(target: Target, tables: Tables) -> None:
    """The four fields are those of the reference: catches every wrong place, id, position, width and dtype."""
    assert_same_fields(tables.build(target), tables.reference)


@law("core", strategies.tables())
def layouts_are_packed(target: Target, tables: Tables) -> None:
    """Starts are multiples, groups hold one document, order is kept, the width is minimal: said without the reference.

    Catches what the reference and a target might get wrong together.
    """
    layout = tables.build(target)
    batch, original_sequence = tables.input_shape
    padded_sequence = layout.source_indices.shape[1]
    multiple = math.lcm(tables.alignment, tables.length_multiple or 1)
    lengths = tables.seq_lens.reshape(batch, -1 if batch else 0).clamp_min(0)
    slots = (-(-lengths // tables.alignment) * tables.alignment).sum(dim=1)
    needed = max([tables.minimum_length, 1, *slots.tolist()])
    assert padded_sequence == -(-needed // multiple) * multiple, f"{padded_sequence} slots for {needed}"
    for row in range(batch):
        source, positions, ids = (
            getattr(layout, name)[row].tolist() for name in ("source_indices", "position_ids", "sequence_ids")
        )
        real = [(column, slot) for column, slot in enumerate(source) if slot != -1]
        back = [-1] * original_sequence
        for column, slot in real:
            back[slot] = column
        assert layout.input_positions[row].tolist() == back, "the maps are not inverse to each other"
        assert [slot for _, slot in real] == sorted(slot for _, slot in real), "order is not kept"
        counts = [ids.count(document + 1) for document in range(lengths.shape[1])]
        assert counts == lengths[row].tolist(), f"documents have {counts} slots"
        assert all((number == 0) == (slot == -1) for number, slot in zip(ids, source, strict=True)), "ids at padding"
        assert not any(place for place, slot in zip(positions, source, strict=True) if slot == -1), (
            "padding has a place"
        )
        for start in range(0, padded_sequence, tables.alignment):
            assert len(set(ids[start : start + tables.alignment]) - {0}) <= 1, f"two documents in the group at {start}"
        for column, slot in real:
            start = column - positions[column]
            assert start % tables.alignment == 0, f"the document of slot {column} starts at {start}"
            assert ids[start] == ids[column], f"slot {column} is not {positions[column]} behind its document's start"
            assert source[start] == slot - positions[column], "a document is not one run of the input"


@law("core", strategies.corrupted_tables())
def corrupt_tables_are_refused(target: Target, tables: Tables) -> None:
    """What the reference refuses is refused with a ValueError, the rest is laid out: catches sums that wrap."""
    refused, expected = outcome(tables.build, target), outcome(tables.build, REFERENCE)
    if isinstance(expected, Exception):
        assert isinstance(refused, ValueError), f"not refused with a ValueError but {refused!r}: {expected}"
    else:
        assert not isinstance(refused, Exception), f"refused: {refused!r}"
        assert_same_fields(refused, expected)


@law("strict", strategies.corrupted_tables())
def faults_are_placed(target: Target, tables: Tables) -> None:
    """Class, row, document and text are those of the reference: catches a fault that is found, but not the first."""
    assert described(outcome(tables.build, target)) == described(outcome(tables.build, REFERENCE))


@law("core", strategies.wrong_arguments())
def wrong_arguments_are_refused(target: Target, case: WrongArguments) -> None:
    """Wrong dtypes, shapes and alignments of tables are a ValueError: catches what broadcasting would hide."""
    result = outcome(case.tables.build, target)
    assert isinstance(result, ValueError), f"{case.wrong} is not refused with a ValueError but gives {result!r}"
