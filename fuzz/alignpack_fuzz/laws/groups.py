"""Laws of compression groups."""

import torch

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import Grouping
from alignpack_fuzz.compare import (
    GROUP_FIELDS,
    assert_same_bits,
    assert_same_groups,
    described,
    named,
    outcome,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import Target


@law("strict", strategies.groupings())
def groups_are_right(target: Target, case: Grouping) -> None:
    """The six fields are those of the reference, also after a shift; ratios that do not divide are refused as there.

    Catches every wrong id, position, flag, range, width and dtype.
    """
    layout, reference = case.tables.build(target), case.tables.reference
    expected = reference.groups(case.ratio)
    assert_same_groups(layout.groups(case.ratio), expected)
    with named("after a shift"):
        assert_same_groups(layout.shift(case.k).groups(case.ratio), expected)
    for ratio in (0, case.tables.alignment + 1, 2 * case.tables.alignment, True):
        refused, wanted = (outcome(which.groups, ratio) for which in (layout, reference))
        assert described(refused) == described(wanted), f"ratio {ratio}: {refused!r}"


@law("strict", strategies.groupings())
def groups_hold_one_document(target: Target, case: Grouping) -> None:
    """What a group is, and that a token sees whole groups of its own past and no other: said without the reference.

    Catches what the reference and a target might get wrong together.
    """
    layout, ratio = case.tables.build(target), case.ratio
    groups = layout.groups(ratio)
    for row in range(len(layout.sequence_ids)):
        ids, positions = layout.sequence_ids[row].tolist(), layout.position_ids[row].tolist()
        ranges = zip(groups.visible_start[row].tolist(), groups.visible_end[row].tolist(), strict=True)
        members = [range(start, start + ratio) for start in range(0, len(ids), ratio)]
        documents, starts, complete, first = (
            getattr(groups, name)[row].tolist() for name in ("sequence_ids", "position_ids", "complete", "first")
        )
        for group, slots in enumerate(members):
            real = [slot for slot in slots if ids[slot]]
            assert {ids[slot] for slot in real} == {documents[group]} - {0}, f"group {group} is of another document"
            assert complete[group] == (len(real) == ratio), f"group {group} is complete: {complete[group]}"
            assert starts[group] == (positions[real[0]] if real else 0), f"group {group} starts at {starts[group]}"
            leads = bool(real) and documents[group] not in documents[:group]
            assert first[group] == leads, f"group {group} is the first of its document: {first[group]}"
        for slot, (start, end) in enumerate(ranges):
            of_document = [group for group, document in enumerate(documents) if document == ids[slot] != 0]
            seen = [group for group in of_document if complete[group] and members[group][-1] <= slot]
            assert list(range(start, end)) == seen, f"slot {slot} sees groups {start} to {end}, should see {seen}"
            own = min(of_document, default=0)
            assert start == own, f"the groups that slot {slot} may see start at {start}, not at {own}"


@law("strict", strategies.groupings())
def groups_of_shards_are_columns(target: Target, case: Grouping) -> None:
    """Each field of a shard's groups is the rank's part of the whole layout's, values unchanged; also after a shift.

    Catches local ranges, first groups that are first only in their shard, and positions that are counted again.
    """
    layout = case.tables.build(target)
    expected = case.tables.reference.groups(case.ratio)
    for source in (layout, layout.shift(case.k)):
        parts = [source.shard(rank, case.size).groups(case.ratio) for rank in range(case.size)]
        for name in GROUP_FIELDS:
            with named(name):
                assert_same_bits(torch.cat([getattr(part, name) for part in parts], dim=1), getattr(expected, name))
    last = case.size - 1
    nested = layout.shard(last, case.size).shard(0, 1)[:1]
    assert_same_groups(nested.groups(case.ratio), case.tables.reference.shard(last, case.size)[:1].groups(case.ratio))
