"""The inputs of the laws: small, built when they are used, and written as Python that builds them again."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch

from alignpack_fuzz.payloads import Payload, Shape
from alignpack_fuzz.targets import REFERENCE


@dataclass(frozen=True)
class Tables:
    """The arguments of one `packed_layout` call."""

    seq_lens: torch.Tensor
    seq_lens_padded: torch.Tensor | None
    input_shape: tuple[int, int]
    alignment: int
    minimum_length: int = 0
    length_multiple: int | None = None

    def __repr__(self) -> str:
        tables = ", ".join(map(_written, (self.seq_lens, self.seq_lens_padded)))
        rest = f"{self.input_shape}, {self.alignment}, {self.minimum_length}, {self.length_multiple}"
        return f"Tables({tables}, {rest})"

    def build(self, target: Any) -> Any:
        """Call the target's `packed_layout`."""
        # By keyword, so that keyword-only signatures work; what is not asked for need not exist.
        optional = {} if self.length_multiple is None else {"length_multiple": self.length_multiple}
        return target.packed_layout(
            seq_lens=self.seq_lens,
            seq_lens_padded=self.seq_lens_padded,
            input_shape=self.input_shape,
            alignment=self.alignment,
            minimum_length=self.minimum_length,
            **optional,
        )

    @cached_property
    def reference(self) -> Any:
        """The reference's layout."""
        return self.build(REFERENCE)

    @property
    def packed_shape(self) -> tuple[int, int]:
        """`(batch, padded_sequence)`, from the reference."""
        batch, padded_sequence = self.reference.source_indices.shape
        return batch, padded_sequence

    @property
    def lengths(self) -> torch.Tensor:
        """`[batch, documents]`, whatever the axes of `seq_lens`."""
        batch = self.input_shape[0]
        return self.seq_lens.reshape(batch, -1 if batch else 0)


@dataclass(frozen=True)
class Move:
    """A layout, what its `pack` is given, and what its `restore` is given."""

    tables: Tables
    given_to_pack: Payload
    given_to_restore: Payload

    @property
    def values(self) -> torch.Tensor:
        """`[batch, original_sequence, ...]`."""
        return self.given_to_pack.tensor

    @property
    def packed(self) -> torch.Tensor:
        """`[batch, padded_sequence, ...]` of the same dtype."""
        return self.given_to_restore.tensor


@dataclass(frozen=True)
class WholeNumbers:
    """A layout and values from -8 to 8 in float64, whose sums and products are exact in any order."""

    tables: Tables
    seed: int

    @cached_property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """`[batch, original_sequence, 2]` and `[batch, padded_sequence, 2]`."""
        generator = torch.Generator().manual_seed(self.seed)
        values, packed = (
            torch.randint(-8, 9, (*shape, 2), generator=generator).to(torch.float64)
            for shape in (self.tables.input_shape, self.tables.packed_shape)
        )
        return values, packed


WrongArgument = Literal[
    "float lengths",
    "int16 lengths",
    "bool spans",
    "another batch",
    "one row for two",
    "a flat table for two rows",
    "three axes",
    "one span more",
    "alignment 0",
    "alignment -4",
    "minimum_length -1",
]


@dataclass(frozen=True)
class WrongArguments:
    """A good call, and what to make wrong in it."""

    good: Tables
    wrong: WrongArgument

    @property
    def tables(self) -> Tables:
        """The call with the wrong argument."""
        good, lengths = self.good, self.good.lengths
        batch, original_sequence = good.input_shape
        one_more = torch.cat([lengths, torch.zeros(batch, 1, dtype=lengths.dtype)], dim=1)
        match self.wrong:
            case "float lengths":
                return replace(good, seq_lens=good.seq_lens.to(torch.float32))
            case "int16 lengths":
                return replace(good, seq_lens=good.seq_lens.to(torch.int16))
            case "bool spans":
                return replace(good, seq_lens_padded=good.seq_lens.to(torch.bool))
            case "another batch":
                return replace(good, input_shape=(batch + 1, original_sequence))
            case "one row for two":
                nothing = torch.zeros(1, 1, dtype=lengths.dtype)
                return replace(good, seq_lens=nothing, seq_lens_padded=None, input_shape=(2, original_sequence))
            case "a flat table for two rows":
                nothing = torch.zeros(1, dtype=lengths.dtype)
                return replace(good, seq_lens=nothing, seq_lens_padded=None, input_shape=(2, original_sequence))
            case "three axes":
                return replace(good, seq_lens=lengths.unsqueeze(0), seq_lens_padded=None)
            case "one span more":
                return replace(good, seq_lens=lengths, seq_lens_padded=one_more)
            case "alignment 0":
                return replace(good, alignment=0)
            case "alignment -4":
                return replace(good, alignment=-4)
            case "minimum_length -1":
                return replace(good, minimum_length=-1)


WrongValue = Literal[
    "a slot more",
    "a row more",
    "a row for all",
    "a slot for all",
    "no slot axis",
    "no axis",
    "another device",
    "float8_e8m0fnu",
    "a list",
]


@dataclass(frozen=True)
class WrongValues:
    """A layout, trailing axes, and what to make wrong in values of that shape."""

    tables: Tables
    trailing: Shape
    wrong: WrongValue

    @property
    def values(self) -> Any:
        """Wrong values for `pack`."""
        return self._values(*self.tables.input_shape)

    @property
    def packed(self) -> Any:
        """Wrong values for `restore`."""
        return self._values(*self.tables.packed_shape)

    def _values(self, batch: int, slots: int) -> Any:
        match self.wrong:
            case "a slot more":
                return torch.zeros(batch, slots + 1, *self.trailing)
            case "a row more":
                return torch.zeros(batch + 1, slots, *self.trailing)
            case "a row for all":  # only broadcasting would take it
                return torch.zeros(1 if batch != 1 else 2, slots, *self.trailing)
            case "a slot for all":
                return torch.zeros(batch, 1 if slots != 1 else 2, *self.trailing)
            case "no slot axis":
                return torch.zeros(batch)
            case "no axis":
                return torch.zeros(())
            case "another device":
                return torch.zeros(batch, slots, *self.trailing, device="meta")
            case "float8_e8m0fnu":  # it has no zero
                return torch.zeros(batch, slots, *self.trailing, dtype=torch.uint8).view(torch.float8_e8m0fnu)
            case "a list":
                return [[0] * slots] * batch

    @property
    def error(self) -> type[Exception]:
        """The class that must refuse them."""
        return TypeError if self.wrong in ("float8_e8m0fnu", "a list") else ValueError


@dataclass(frozen=True)
class Sharding:
    """A layout that divides evenly into shards, and what `pack` is given."""

    tables: Tables
    size: int
    given_to_pack: Payload

    @property
    def values(self) -> torch.Tensor:
        """`[batch, original_sequence, ...]`."""
        return self.given_to_pack.tensor


@dataclass(frozen=True)
class RowSlice:
    """A layout and a slice of its rows."""

    tables: Tables
    rows: slice


@dataclass(frozen=True)
class Grouping:
    """A layout that divides evenly into shards, a compression ratio that divides its alignment, and a shift."""

    tables: Tables
    ratio: int
    size: int
    k: int


@dataclass(frozen=True)
class Shifting:
    """A layout that divides evenly into shards, two shifts one after the other, and a seed of values."""

    tables: Tables
    k: int
    then: int
    size: int
    seed: int

    @cached_property
    def values(self) -> torch.Tensor:
        """`[batch, original_sequence]` float64, whole numbers from 1 to 8."""
        return self._whole_numbers(self.tables.input_shape)

    @cached_property
    def packed(self) -> torch.Tensor:
        """`[batch, padded_sequence]` of the same kind."""
        return self._whole_numbers(self.tables.packed_shape)

    def _whole_numbers(self, shape: Shape) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(1, 9, shape, generator=generator).to(torch.float64)


@dataclass(frozen=True)
class FillCase:
    """A dtype and fills for it, legal or not."""

    dtype: torch.dtype
    fills: tuple[Any, ...]


def _written(table: torch.Tensor | None) -> str:
    if table is None:
        return "None"
    # A list says nothing of the axes of a table without entries.
    shape = "" if table.numel() else f".reshape({tuple(table.shape)})"
    return f"torch.tensor({table.tolist()}, dtype={table.dtype}){shape}"
