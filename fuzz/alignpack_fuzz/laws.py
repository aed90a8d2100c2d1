"""The laws that an implementation keeps: each is one function, checked on random cases, with the target as parameter.

`core` laws hold for every implementation of the contract; `strict` laws are what `alignpack` promises beyond it. A law
raises AssertionError where it is broken. Anything else that a target raises is a broken law, too.
"""

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.utils._pytree as pytree
from hypothesis import strategies as st

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    FillCase,
    Move,
    RowSlice,
    Sharding,
    Tables,
    WholeNumbers,
    WrongArguments,
    WrongValues,
)
from alignpack_fuzz.compare import (
    FIELDS,
    assert_same_bits,
    assert_same_fields,
    assert_same_layout,
    bytes_of,
    bytes_of_storage,
    described,
    named,
    outcome,
)
from alignpack_fuzz.targets import REFERENCE, Target

Group = Literal["core", "strict"]
Check = Callable[[Target, Any], None]


@dataclass(frozen=True)
class Law:
    """One law.

    Attributes:
        group: `core` or `strict`.
        meaning: what it says and which faults break it.
        cases: the random cases that it is checked on.
        check: raises when a target breaks it on a case.
    """

    name: str
    group: Group
    meaning: str
    cases: st.SearchStrategy[Any]
    check: Check


LAWS: dict[str, Law] = {}
"""All laws by name, in the order of this module."""


def law(group: Group, cases: st.SearchStrategy[Any]) -> Callable[[Check], Check]:
    """Register a function as a law of a group, checked on such cases; its name and docstring are the law's."""

    def register(check: Check) -> Check:
        LAWS[check.__name__] = Law(check.__name__, group, inspect.getdoc(check) or "", cases, check)
        return check

    return register


def choose(names: str) -> list[Law]:
    """The laws that a comma-separated list of names and groups names; an empty one names all.

    Raises:
        ValueError: a name is neither a law nor a group.
    """
    chosen: dict[str, Law] = {}
    for name in filter(None, (name.strip() for name in names.split(","))):
        group = {law.name: law for law in LAWS.values() if name in (law.name, law.group)}
        if not group:
            raise ValueError(f"{name!r} is no law and no group; there are core, strict, {', '.join(LAWS)}")
        chosen |= group
    return list((chosen or LAWS).values())


# --- layouts ---------------------------------------------------------------------------------------------------------


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
    refused, expected = outcome(lambda: tables.build(target)), outcome(lambda: tables.reference)
    if isinstance(expected, Exception):
        assert isinstance(refused, ValueError), f"not refused with a ValueError but {refused!r}: {expected}"
    else:
        assert not isinstance(refused, Exception), f"refused: {refused!r}"
        assert_same_fields(refused, expected)


@law("strict", strategies.corrupted_tables())
def faults_are_placed(target: Target, tables: Tables) -> None:
    """Class, row, document and text are those of the reference: catches a fault that is found, but not the first."""
    assert described(outcome(lambda: tables.build(target))) == described(outcome(lambda: tables.reference))


@law("core", strategies.wrong_arguments())
def wrong_arguments_are_refused(target: Target, case: WrongArguments) -> None:
    """Wrong dtypes, shapes and alignments of tables are a ValueError: catches what broadcasting would hide."""
    result = outcome(lambda: case.tables.build(target))
    assert isinstance(result, ValueError), f"{case.wrong} is not refused with a ValueError but gives {result!r}"


# --- values ----------------------------------------------------------------------------------------------------------


@law("core", strategies.moves(strategies.CORE_DTYPES))
def values_are_moved(target: Target, case: Move) -> None:
    """Pack and restore give the reference's bits: catches wrong slots, strides, dtypes, NaN payloads, -0.0."""
    layout, reference = case.tables.build(target), case.tables.reference
    with named("pack"):
        assert_same_bits(layout.pack(case.values), reference.pack(case.values))
    with named("restore"):
        assert_same_bits(layout.restore(case.packed), reference.restore(case.packed))


@law("strict", strategies.moves(strategies.DTYPES))
def every_dtype_is_moved(target: Target, case: Move) -> None:
    """The same for every dtype of the contract: catches dtypes that an operator lacks."""
    values_are_moved(target, case)


@law("core", strategies.moves(strategies.CORE_DTYPES))
def restore_undoes_pack(target: Target, case: Move) -> None:
    """Real tokens come back bit for bit, input padding as +0: catches a trim of the wrong slots."""
    layout = case.tables.build(target)
    padding = case.tables.reference.input_positions == -1
    restored = layout.restore(layout.pack(case.values))
    expected = case.values.clone(memory_format=torch.contiguous_format)
    expected[padding] = torch.zeros((), dtype=expected.dtype)
    assert_same_bits(restored, expected)


@law("core", strategies.moves(strategies.CORE_DTYPES))
def results_are_independent(target: Target, case: Move) -> None:
    """Results are new and contiguous, arguments and maps stay: catches aliases in the identity case, and mutation."""
    layout = case.tables.build(target)
    arguments = [case.values, case.packed, case.tables.seq_lens, *(getattr(layout, name) for name in FIELDS)]
    arguments += [case.tables.seq_lens_padded] if case.tables.seq_lens_padded is not None else []
    before = [bytes_of(argument).clone() for argument in arguments]
    results = [layout.pack(case.values), layout.restore(case.packed), layout.pack(case.values)]
    kept = bytes_of(results[2]).clone()
    for result in results:
        assert result.is_contiguous(), "a result is not contiguous"
    for result in results[:2]:
        bytes_of_storage(result).fill_(0x55)
    assert torch.equal(bytes_of(results[2]), kept), "two results share memory"
    for argument, old in zip(arguments, before, strict=True):
        assert torch.equal(bytes_of(argument), old), "an argument or a map changed, or shares memory with a result"


@law("core", st.tuples(strategies.moves((torch.int64,)), strategies.tables()))
def layouts_are_independent(target: Target, case: tuple[Move, Tables]) -> None:
    """A layout keeps its meaning when another one is built and used: catches caches by shape or address."""
    move, other = case
    layout = move.tables.build(target)
    second = other.build(target)
    second.pack(torch.zeros(other.input_shape, dtype=torch.int64))
    # The same shape with every document one token shorter: what a cache that looks at shapes would confuse.
    lengths = torch.where(move.tables.seq_lens > 1, move.tables.seq_lens - 1, move.tables.seq_lens)
    spans = move.tables.seq_lens if move.tables.seq_lens_padded is None else move.tables.seq_lens_padded
    width = layout.source_indices.shape[1]
    twin = dataclasses.replace(move.tables, seq_lens=lengths, seq_lens_padded=spans, minimum_length=width)
    for tables, built in ((twin, twin.build(target)), (move.tables, layout)):
        expected = tables.reference
        assert_same_fields(built, expected)
        assert_same_bits(built.pack(move.values), expected.pack(move.values))
        packed = torch.ones(expected.source_indices.shape, dtype=torch.int64)
        assert_same_bits(built.restore(packed), expected.restore(packed))


@law("core", strategies.moves((torch.float32, torch.bfloat16, torch.float64)))
def garbage_in_padding_reaches_nothing(target: Target, case: Move) -> None:
    """NaN at input or packed padding, forward and upstream, leaves no trace: catches masks that multiply."""
    layout, reference = case.tables.build(target), case.tables.reference
    input_padding, packed_padding = reference.input_positions == -1, reference.source_indices == -1
    values = torch.ones(case.values.shape, dtype=case.values.dtype)
    packed = torch.ones(case.packed.shape, dtype=case.values.dtype)
    dirty_values, dirty_packed = values.clone(), packed.clone()
    dirty_values[input_padding], dirty_packed[packed_padding] = math.nan, math.inf
    assert_same_bits(layout.pack(dirty_values), reference.pack(values))
    assert_same_bits(layout.restore(dirty_packed), reference.restore(packed))
    assert_same_bits(target.pack_gradient(layout, dirty_packed), REFERENCE.pack_gradient(reference, packed))
    assert_same_bits(target.restore_gradient(layout, dirty_values), REFERENCE.restore_gradient(reference, values))


@law("strict", strategies.fill_cases())
def fills_are_exact_or_refused(target: Target, case: FillCase) -> None:
    """A fill becomes the bits that the reference gives it, or the same error: catches casts that cut or wrap."""

    def fill_once(which: Target) -> Any:
        layout = which.packed_layout(torch.tensor([[1]]), None, (1, 1), 2)
        return layout.pack(torch.zeros(1, 1, dtype=case.dtype), case.fill)

    actual, expected = outcome(lambda: fill_once(target)), outcome(lambda: fill_once(REFERENCE))
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        assert_same_bits(actual, expected)
    else:
        assert described(actual) == described(expected)


@law("strict", strategies.wrong_values())
def wrong_values_are_refused(target: Target, case: WrongValues) -> None:
    """Values of another shape, rank, device or dtype are refused as the contract says: catches silent broadcasting."""
    layout = case.tables.build(target)
    result = outcome(lambda: layout.pack(case.values))
    assert type(result) is case.error, f"{case.wrong}: not a {case.error.__name__} but {result!r}"


# --- gradients -------------------------------------------------------------------------------------------------------


@law("core", strategies.moves(strategies.CORE_FLOATS))
def gradients_are_adjoint(target: Target, case: Move) -> None:
    """Gradients are the reference's explicit adjoints, bit for bit, for upstream gradients of any bits and strides.

    Catches clamped indices, accumulation, an upstream whose strides are ignored, a gradient in the wrong row.
    """
    layout, reference = case.tables.build(target), case.tables.reference
    with named("gradient of pack"):
        assert_same_bits(target.pack_gradient(layout, case.packed), REFERENCE.pack_gradient(reference, case.packed))
    with named("gradient of restore"):
        upstream = case.values
        assert_same_bits(target.restore_gradient(layout, upstream), REFERENCE.restore_gradient(reference, upstream))


@law("core", strategies.whole_numbers())
def inner_products_agree(target: Target, case: WholeNumbers) -> None:
    """<pack(x), y> = <x, adjoint(y)>, and so for restore; exact, as all numbers are small: said without the reference."""
    layout = case.tables.build(target)
    values, packed = case.tensors
    moved, back = layout.pack(values), target.pack_gradient(layout, packed)
    assert (moved * packed).sum() == (values * back).sum(), "pack and its gradient"
    moved, back = layout.restore(packed), target.restore_gradient(layout, values)
    assert (moved * values).sum() == (packed * back).sum(), "restore and its gradient"


@law("core", strategies.whole_numbers())
def second_derivatives_are_right(target: Target, case: WholeNumbers) -> None:
    """The second derivative of the cubes of what was moved, exact in small numbers: catches detached backwards."""
    if target is REFERENCE:
        return  # its adjoints are plain functions
    layout, reference = case.tables.build(target), case.tables.reference
    values, packed = case.tensors
    for move, start, weight, adjoint in (
        (layout.pack, values, packed, REFERENCE.pack_gradient),
        (layout.restore, packed, values, REFERENCE.restore_gradient),
    ):
        point = start.clone().requires_grad_()
        (first,) = torch.autograd.grad((move(point) ** 3 * weight).sum(), point, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), point)
        assert torch.equal(second, 6 * start * adjoint(reference, weight))


# --- layouts from layouts --------------------------------------------------------------------------------------------


@law("strict", strategies.shardings())
def shards_make_the_whole(target: Target, case: Sharding) -> None:
    """Shards concatenate to the layout and to pack, their restores sum to restore, their fields are the reference's.

    Catches positions that are numbered again, tokens that two ranks own, maps that stay global.
    """
    layout, reference = case.tables.build(target), case.tables.reference
    shards = [layout.shard(rank, case.size) for rank in range(case.size)]
    for rank, shard in enumerate(shards):
        assert_same_layout(shard, reference.shard(rank, case.size))
    for name in ("source_indices", "position_ids", "sequence_ids"):
        assert_same_bits(torch.cat([getattr(shard, name) for shard in shards], 1), getattr(reference, name))
    packed = reference.pack(case.values, 7)
    assert_same_bits(torch.cat([shard.pack(case.values, 7) for shard in shards], 1), packed)
    pieces = packed.chunk(case.size, dim=1)
    restored = sum(shard.restore(piece) for shard, piece in zip(shards, pieces, strict=True))
    assert_same_bits(restored, reference.restore(packed))


@law("strict", strategies.row_slices())
def row_slices_are_those_rows(target: Target, case: RowSlice) -> None:
    """`layout[i:j]` is the reference's, and packs those rows as the whole does: catches offsets of the wrong row."""
    part = case.tables.build(target)[case.rows]
    reference = case.tables.reference
    assert_same_layout(part, reference[case.rows])
    values = torch.arange(math.prod(case.tables.input_shape)).reshape(case.tables.input_shape)
    assert_same_bits(part.pack(values[case.rows]), reference.pack(values)[case.rows])


@law("strict", st.tuples(strategies.moves((torch.int64,)), st.sampled_from((0, 1, -100))))
def batches_are_separate_packs(target: Target, case: tuple[Move, int]) -> None:
    """`pack_batch` gives what one `pack` per tensor gives, with each tensor's fill: catches fills that are mixed up."""
    move, fill = case
    layout = move.tables.build(target)
    batch = {"ids": move.values, "mask": move.values > 0, "weights": move.values.double()}
    for fills in ({"ids": fill}, 1):
        packed = layout.pack_batch(batch, fills)
        assert list(packed) == list(batch), "names or their order changed"
        for name, values in batch.items():
            wanted = fills.get(name, 0) if isinstance(fills, dict) else fills
            assert_same_bits(packed[name], layout.pack(values, wanted))


@law("strict", strategies.tables())
def copies_are_equal(target: Target, tables: Tables) -> None:
    """Pickles, copies, rebuilt and flattened layouts are equal and move alike: catches fields that get lost."""
    layout = tables.build(target)
    by_fields = {field.name: getattr(layout, field.name) for field in dataclasses.fields(layout)}
    leaves, spec = pytree.tree_flatten(layout)
    values = torch.arange(math.prod(tables.input_shape)).reshape(tables.input_shape)
    for duplicate in (
        pickle.loads(pickle.dumps(layout)),
        copy.deepcopy(layout),
        dataclasses.replace(layout),
        type(layout)(**by_fields),
        pytree.tree_unflatten(leaves, spec),
        layout.to("cpu"),
    ):
        assert layout.equal(duplicate)
        assert duplicate.equal(layout)
        assert_same_bits(duplicate.pack(values, -1), layout.pack(values, -1))


# --- running ---------------------------------------------------------------------------------------------------------


@law("strict", strategies.moves(strategies.CORE_FLOATS))
def runs_repeat(target: Target, case: Move) -> None:
    """Two runs give the same bits, forward and backward: catches unwritten memory and sums in changing order."""

    def run() -> list[torch.Tensor]:
        layout = case.tables.build(target)
        moved = [layout.pack(case.values), layout.restore(case.packed)]
        moved += [target.pack_gradient(layout, case.packed), target.restore_gradient(layout, case.values)]
        return [*moved, *(getattr(layout, name) for name in FIELDS)]

    for first, second in zip(run(), run(), strict=True):
        assert_same_bits(first, second)


_THREADS = ThreadPoolExecutor(4)


@law("strict", strategies.moves((torch.int64, torch.float32)))
def threads_do_not_meet(target: Target, case: Move) -> None:
    """One layout packed from several threads gives what one thread gets: catches scratch memory that is shared."""
    layout, reference = case.tables.build(target), case.tables.reference
    packed, restored = reference.pack(case.values), reference.restore(case.packed)
    jobs = [_THREADS.submit(layout.pack, case.values) for _ in range(4)]
    jobs += [_THREADS.submit(layout.restore, case.packed) for _ in range(4)]
    for number, job in enumerate(jobs):
        assert_same_bits(job.result(), packed if number < 4 else restored)
