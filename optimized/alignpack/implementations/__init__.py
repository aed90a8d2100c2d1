"""The implementations by name, and which one a call gets.

A backend is four functions: one checks what the tables say and builds the fields of a layout, one moves rows, two write
what groups and shifts of a layout hold. Everything that is the same for all of them (arguments, errors, gradients, the
layout object) stands above this package.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from alignpack.implementations import numba_backend, numba_derived, torch_backend, torch_derived
from alignpack.tables import LengthTables
from alignpack.watchers import is_unwatched
from alignpack_reference import errors

ENVIRONMENT_VARIABLE = "ALIGNPACK_BACKEND"


GroupFields = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Backend:
    """One implementation.

    Attributes:
        unavailable: why it cannot run on a device, or None when it can.
        build_fields: the four fields of a layout, in their order, on a device.
        gather_rows: `out[b, i] = values[b, index[b, i]]`, the fill's words where `index` is -1; no gradients.
        group_fields: the six tensors of `CompressionGroups`, from ids, positions, offset and ratio.
        shift_maps: the two maps of a shifted layout, from both maps, the ids and the distance.
    """

    name: str
    unavailable: Callable[[torch.device], str | None]
    build_fields: Callable[[LengthTables, torch.device], tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]
    gather_rows: Callable[[torch.Tensor, torch.Tensor, tuple[int, ...]], torch.Tensor]
    group_fields: Callable[[torch.Tensor, torch.Tensor, int, int], GroupFields]
    shift_maps: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


# The fastest first: without a name, a call gets the first that runs on its device.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            "numba",
            numba_backend.unavailable,
            numba_backend.build_fields,
            numba_backend.gather_rows,
            numba_derived.group_fields,
            numba_derived.shift_maps,
        ),
        Backend(
            "torch",
            torch_backend.unavailable,
            torch_backend.build_fields,
            torch_backend.gather_rows,
            torch_derived.group_fields,
            torch_derived.shift_maps,
        ),
    )
}


def select_backend(name: str | None, device: torch.device) -> Backend:
    """The backend of that name, or the environment's choice, or the fastest that runs on `device`.

    Raises:
        TypeError: the name is no string.
        ValueError: there is no backend of that name.
        RuntimeError: the backend cannot run on `device`.
    """
    origin = "backend"
    if name is None:
        name = os.environ.get(ENVIRONMENT_VARIABLE) or None
        origin = ENVIRONMENT_VARIABLE
    if name is None:
        for backend in BACKENDS.values():
            if backend.unavailable(device) is None:
                return backend
        raise errors.no_backend_runs(device, _overview(device))
    if not isinstance(name, str):
        raise errors.not_a_name(name)
    if name not in BACKENDS:
        raise errors.unknown_backend(origin, name, device, _overview(device))
    backend = BACKENDS[name]
    if (reason := backend.unavailable(device)) is not None:
        raise errors.unavailable_backend(origin, name, device, reason, _overview(device))
    return backend


def select_backend_for(field: torch.Tensor, other: torch.Tensor, *more: torch.Tensor) -> Backend:
    """The backend that derives something from fields of a layout; the one that traces, where these hold no data.

    Raises:
        ValueError, RuntimeError: as `select_backend`, for the environment's choice.
    """
    # Transforms and tracers put other things than plain tensors into layouts, or want to see every operation.
    if torch.compiler.is_compiling() or not all(is_unwatched(field, one) for one in (other, *more)):
        return BACKENDS["torch"]
    return select_backend(None, field.device)


def _overview(device: torch.device) -> str:
    reasons = {backend.name: backend.unavailable(device) for backend in BACKENDS.values()}
    return ", ".join(
        f"{name!r} runs" if reason is None else f"{name!r} does not run ({reason})" for name, reason in reasons.items()
    )
