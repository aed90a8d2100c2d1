"""Laws of moving values."""

import dataclasses
import math

import torch
from hypothesis import strategies as st

from alignpack_fuzz import strategies
from alignpack_fuzz.cases import (
    FillCase,
    Move,
    Tables,
    WrongValues,
)
from alignpack_fuzz.compare import (
    FIELDS,
    assert_same_bits,
    assert_same_fields,
    bytes_of,
    bytes_of_storage,
    described,
    named,
    outcome,
)
from alignpack_fuzz.laws.registry import law
from alignpack_fuzz.targets import REFERENCE, Target


@law("core", strategies.moves(strategies.CORE_DTYPES))
def values_are_moved(target: Target, case: Move) -> None:
    """Pack and restore give the reference's bits: catches wrong slots, strides, dtypes, NaN payloads, -0.0."""
    layout, reference = case.tables.build(target), case.tables.reference
    with named("pack"):
        assert_same_bits(layout.pack(case.values), reference.pack(case.values))
    with named("pack with a fill of 1"):
        assert_same_bits(layout.pack(case.values, 1), reference.pack(case.values, 1))
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
    """Results are new, contiguous and may be changed; arguments and maps stay.

    Catches aliases in the identity case, mutation, and results that are views of what they were written as.
    """
    arguments = [case.values, case.packed, case.tables.seq_lens]
    arguments += [case.tables.seq_lens_padded] if case.tables.seq_lens_padded is not None else []
    before = [bytes_of(argument).clone() for argument in arguments]  # the tables as they are before the build
    layout = case.tables.build(target)
    arguments += [getattr(layout, name) for name in FIELDS]
    before += [bytes_of(getattr(layout, name)).clone() for name in FIELDS]
    results = [layout.pack(case.values), layout.restore(case.packed), layout.pack(case.values)]
    kept = bytes_of(results[2]).clone()
    for result in results:
        assert result.is_contiguous(), "a result is not contiguous"
    for result in results[:2]:
        bytes_of_storage(result).fill_(0x55)
    assert torch.equal(bytes_of(results[2]), kept), "two results share memory"
    for argument, old in zip(arguments, before, strict=True):
        assert torch.equal(bytes_of(argument), old), "an argument or a map changed, or shares memory with a result"
    if case.values.dtype.is_floating_point:
        moved = layout.pack(case.values.detach().clone().requires_grad_())
        moved.add_(1)  # which autograd refuses where the result is a view that it does not know


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
    values = torch.zeros(1, 1, dtype=case.dtype)
    layouts = [which.packed_layout(torch.tensor([[1]]), None, (1, 1), 2) for which in (target, REFERENCE)]
    for fill in case.fills:
        actual, expected = (outcome(layout.pack, values, fill) for layout in layouts)
        with named(f"fill {fill!r}"):
            if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
                assert_same_bits(actual, expected)
            else:
                assert described(actual) == described(expected)


@law("strict", strategies.wrong_values())
def wrong_values_are_refused(target: Target, case: WrongValues) -> None:
    """Values of another shape, rank, device or dtype are refused as the contract says: catches silent broadcasting."""
    layout = case.tables.build(target)
    for move, values in ((layout.pack, case.values), (layout.restore, case.packed)):
        result = outcome(move, values)
        assert type(result) is case.error, f"{case.wrong}: not a {case.error.__name__} but {result!r}"
