"""A target whose layouts live on another device: the laws keep speaking of host tensors, and everything is carried over.

Values keep their strides on the way, so that what the laws say of strides is said of the device's tensors.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from alignpack import context_parallel
from alignpack_fuzz.laws import LAWS, Law
from alignpack_fuzz.targets import ModuleTarget

NOT_CARRIED = ("copies_are_equal",)
"""Laws of the layout object itself, which stands behind another one here."""

DEVICE_LAWS: tuple[Law, ...] = tuple(law for name, law in LAWS.items() if name not in NOT_CARRIED)
"""The laws that hold on a device."""


@dataclass(frozen=True)
class DeviceTarget(ModuleTarget):
    """Another target of this library with its layouts on a device.

    Attributes:
        device: where.
        within: the other target's `active`.
    """

    device: torch.device
    within: Callable[[], AbstractContextManager[None]]

    def active(self) -> AbstractContextManager[None]:
        """See `Target`."""
        return self.within()


def on_device(target: ModuleTarget, device: torch.device) -> DeviceTarget:
    """The target with all its layouts on the device."""

    def packed_layout(*arguments: Any, **options: Any) -> DeviceLayout:
        return DeviceLayout(target.packed_layout(*arguments, device=device, **options), device)

    def gather_sequence(tensor: torch.Tensor, group: None) -> torch.Tensor:
        return context_parallel.gather_sequence(carried(tensor, device), group).cpu()

    name = f"{target.name} on {device}"
    return DeviceTarget(name, packed_layout, device, target.active, gather_sequence=gather_sequence)


@dataclass(frozen=True, eq=False)
class DeviceLayout:
    """A layout on a device as the laws see it: what goes in and comes out is on the host."""

    layout: Any
    device: torch.device

    def __getattr__(self, name: str) -> Any:
        return _on_host(self.layout, name)

    def pack(self, values: Any, fill: Any = 0) -> Any:
        """Pack on the device."""
        return self.layout.pack(carried(values, self.device), fill).cpu()

    def restore(self, values: Any) -> Any:
        """Restore on the device."""
        return self.layout.restore(carried(values, self.device)).cpu()

    def pack_batch(self, batch: dict[str, torch.Tensor], fill: Any = 0) -> dict[str, torch.Tensor]:
        """Pack a batch on the device."""
        there = {name: carried(values, self.device) for name, values in batch.items()}
        return {name: packed.cpu() for name, packed in self.layout.pack_batch(there, fill).items()}

    def shard(self, rank: int, size: int) -> "DeviceLayout":
        """See the layout."""
        return DeviceLayout(self.layout.shard(rank, size), self.device)

    def shift(self, k: int) -> "DeviceLayout":
        """See the layout."""
        return DeviceLayout(self.layout.shift(k), self.device)

    def groups(self, ratio: int) -> "DeviceGroups":
        """See the layout."""
        return DeviceGroups(self.layout.groups(ratio))

    def __getitem__(self, rows: slice) -> "DeviceLayout":
        return DeviceLayout(self.layout[rows], self.device)


@dataclass(frozen=True, eq=False)
class DeviceGroups:
    """Compression groups on a device as the laws see them."""

    groups: Any

    def __getattr__(self, name: str) -> Any:
        return _on_host(self.groups, name)


def _on_host(there: Any, name: str) -> Any:
    value = getattr(there, name)
    if callable(value):  # it would give what is on the device, which shows only where that is not the host
        raise AttributeError(f"{name} of {type(there).__name__} is not carried to the host")  # noqa: TRY004 - no attribute here
    return value.cpu() if isinstance(value, torch.Tensor) else value


def carried(values: Any, device: torch.device) -> Any:
    """The values on the device, with the strides that they have here; what cannot be carried is left to be refused."""
    if not isinstance(values, torch.Tensor) or not values.is_cpu:
        return values
    if values.requires_grad or values.is_conj() or values.is_neg():
        return values.to(device)
    # All the memory that it looks at, seen in the same way.
    memory = torch.empty(0, dtype=values.dtype).set_(values.untyped_storage()).to(device)
    return memory.as_strided(values.shape, values.stride(), values.storage_offset())
