"""What a backend is: the functions of one implementation, and the fields that they build."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from alignpack._inputs.tables import LengthTables


class LayoutFields(NamedTuple):
    """The tensors of a `PackedSequenceLayout`, in the order of its constructor."""

    source_indices: torch.Tensor
    input_positions: torch.Tensor
    position_ids: torch.Tensor
    sequence_ids: torch.Tensor


class GroupFields(NamedTuple):
    """The tensors of a `CompressionGroups`, in the order of its constructor."""

    sequence_ids: torch.Tensor
    position_ids: torch.Tensor
    complete: torch.Tensor
    first: torch.Tensor
    visible_start: torch.Tensor
    visible_end: torch.Tensor


class ShiftedMaps(NamedTuple):
    """The two maps of a shifted layout."""

    source_indices: torch.Tensor
    input_positions: torch.Tensor


@dataclass(frozen=True)
class Backend:
    """One implementation for one type of device. Callers check arguments and handle gradients.

    Attributes:
        name: what users call it; backends for different devices share a name.
        device_type: the type of device that it serves; None: every type.
        unavailable: why it cannot run on a device of that type; None when it can.
        build_fields: the fields of a layout on a device. It raises LayoutError for the first document, in row-major order,
            that the input row cannot hold, and ValueError where packed rows would have too many slots.
        gather_slots: `out[b, i] = values[b, index[b, i]]`, the fill's words where `index` is -1; no gradients.
        group_fields: the fields of groups, from ids, positions, offset and ratio.
        shift_maps: the maps of a shifted layout, from both maps, the ids and the distance.
        warmup: compile and load everything for a device.
    """

    name: str
    device_type: str | None
    unavailable: Callable[[torch.device], str | None]
    build_fields: Callable[[LengthTables, torch.device], LayoutFields]
    gather_slots: Callable[[torch.Tensor, torch.Tensor, tuple[int, ...]], torch.Tensor]
    group_fields: Callable[[torch.Tensor, torch.Tensor, int, int], GroupFields]
    shift_maps: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], ShiftedMaps]
    warmup: Callable[[torch.device], None]
