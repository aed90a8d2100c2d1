"""The base of layouts and compression groups: frozen dataclasses of tensors on one device and integers."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar

import torch
import torch.utils._pytree as pytree

from alignpack._torch_state import without_inference_mode
from alignpack_reference import errors


class TensorRecord:
    """Base of frozen dataclasses whose fields are tensors on one device and integers.

    A record compares and hashes by identity, because comparing tensors would wait for a device; `equal` compares
    contents. Records are rebuilt without checks, because transforms put other objects in the tensors' places.
    """

    _TENSORS: ClassVar[tuple[str, ...]]
    _INTEGERS: ClassVar[tuple[str, ...]]

    def equal(self, other: object) -> bool:
        """Whether the other has the same fields with the same contents, on the same device."""
        if not isinstance(other, TensorRecord) or self._TENSORS != other._TENSORS:
            return False
        return self._integers() == other._integers() and all(
            mine.device == theirs.device and torch.equal(mine, theirs)
            for mine, theirs in zip(self._tensors(), other._tensors(), strict=True)
        )

    def to(self, device: torch.device | str | int | torch.Tensor, non_blocking: bool = False) -> Self:
        """The same with every tensor on that device, or on the device of that tensor; dtypes never change.

        `non_blocking` is that of `torch.Tensor.to`.

        Raises:
            TypeError: `device` is something else, such as a dtype.
            RuntimeError: PyTorch's own, for an unknown or missing device.
        """
        if isinstance(device, torch.Tensor):
            device = device.device
        if isinstance(device, bool) or not isinstance(device, (torch.device, str, int)):
            raise TypeError(f"device must be a device or a tensor on it, got {errors.shown(device)}")
        target = torch.device(device)
        return self._map(lambda tensor: tensor.to(target, non_blocking=non_blocking))

    def cpu(self) -> Self:
        """The same on the CPU."""
        return self.to("cpu")

    def cuda(self, device: torch.device | str | int | None = None, non_blocking: bool = False) -> Self:
        """The same on a CUDA device; None: the current one."""
        return self.to("cuda" if device is None else device, non_blocking)

    def pin_memory(self) -> Self:
        """A copy in page-locked host memory, from which `to(device, non_blocking=True)` does not wait."""
        return self._map(torch.Tensor.pin_memory)

    def __repr__(self) -> str:
        """Shapes, device and integers; showing data would wait for a GPU."""
        shown = [f"{name}={_shape(getattr(self, name))}" for name in self._TENSORS]
        shown.append(f"device={getattr(self._tensors()[0], 'device', None)}")
        shown += [f"{name}={integer}" for name, integer in zip(self._INTEGERS, self._integers(), strict=True)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        with without_inference_mode():
            return self._rebuilt((function(tensor) for tensor in self._tensors()), self._integers())

    @classmethod
    def _rebuilt(cls, tensors: Iterable[torch.Tensor], integers: Iterable[int | None]) -> Self:
        fields = zip((*cls._TENSORS, *cls._INTEGERS), (*tensors, *integers), strict=True)
        return cls(**dict(fields))

    def _tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(self, name) for name in self._TENSORS)

    def _integers(self) -> tuple[int | None, ...]:
        return tuple(getattr(self, name) for name in self._INTEGERS)


Record = TypeVar("Record", bound=type[TensorRecord])


def register_record(record: Record) -> Record:
    """Make a class of records a pytree: the tensors are its leaves, the integers its context."""

    def flatten_with_keys(instance: TensorRecord) -> tuple[list[tuple[Any, torch.Tensor]], tuple[int | None, ...]]:
        keys = [pytree.GetAttrKey(name) for name in record._TENSORS]
        return list(zip(keys, instance._tensors(), strict=True)), instance._integers()

    pytree.register_pytree_node(
        record,
        lambda instance: (list(instance._tensors()), instance._integers()),
        record._rebuilt,
        serialized_type_name=f"alignpack.{record.__name__}",
        to_dumpable_context=list,
        from_dumpable_context=tuple,
        flatten_with_keys_fn=flatten_with_keys,
    )
    # Only tensors and integers, so `torch.load` may rebuild it with `weights_only=True`.
    torch.serialization.add_safe_globals([record])
    return record


def _shape(tensor: object) -> object:
    """The shape for `repr`; transforms put other objects in the tensors' places."""
    shape = getattr(tensor, "shape", None)
    return type(tensor).__name__ if shape is None else list(shape)
