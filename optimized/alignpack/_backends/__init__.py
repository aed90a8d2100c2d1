"""The backends, and which one a call gets."""

import functools
import os
from typing import Literal, TypeAlias

import torch

from alignpack._backends import torch_backend
from alignpack._backends.interface import Backend
from alignpack._backends.numba_cpu import backend as numba_cpu
from alignpack._backends.numba_cuda import backend as numba_cuda
from alignpack._torch_state import can_bypass_dispatcher

ENVIRONMENT_VARIABLE = "ALIGNPACK_BACKEND"

BackendName: TypeAlias = Literal["numba", "torch"]

# The fastest first: a call that names none gets the first that runs on its device.
BACKENDS: tuple[Backend, ...] = (numba_cpu.BACKEND, numba_cuda.BACKEND, torch_backend.BACKEND)


def select_backend(name: str | None, device: torch.device) -> Backend:
    """The backend of that name, or the environment's choice, or the fastest that runs on `device`.

    Raises:
        TypeError: the name is not a string.
        ValueError: the name is unknown.
        RuntimeError: the backend cannot run on `device`.
    """
    origin = "backend"
    if name is None:
        name = os.environ.get(ENVIRONMENT_VARIABLE) or None
        origin = ENVIRONMENT_VARIABLE
    if name is None:
        device_type = _device_type(device)
        for backend in BACKENDS:
            served = backend.device_type
            if (served == device_type or served is None) and backend.unavailable(device) is None:
                return backend
        raise RuntimeError(f"no backend runs on {device}: {_overview(device)}")
    if not isinstance(name, str):
        raise TypeError(f"backend must be a name or None, got {name!r}")
    if name not in _names():
        raise ValueError(f"{origin}={name!r} is not a backend; on {device}: {_overview(device)}")
    if (reason := _why_not(name, device)) is not None:
        raise RuntimeError(f"{origin}={name!r} does not run on {device}: {reason}; on {device}: {_overview(device)}")
    return named_backend(name, device)


def named_backend(name: str, device: torch.device) -> Backend:
    """The backend of that name for the device type, whether it runs or not; `torch` if none of that name serves it."""
    return next((b for b in BACKENDS if b.name == name and _serves(b, device)), torch_backend.BACKEND)


def select_backend_for(field: torch.Tensor, other: torch.Tensor, *more: torch.Tensor) -> Backend:
    """The backend that computes groups or shifts from the fields of a layout."""
    # Transforms and tracers put other objects into layouts, or must see every operation.
    if torch.compiler.is_compiling() or not all(can_bypass_dispatcher(field, one) for one in (other, *more)):
        return torch_backend.BACKEND
    return select_backend(None, field.device)


def backends() -> dict[str, dict[str, str | None]]:
    """For the CPU and each CUDA device: the backends in the order in which a call tries them, and why one does not run.

    Returns:
        By device and name of the backend: None where it runs, otherwise the reason.

    Example:
        >>> backends()["cpu"]
        {'numba': None, 'torch': None}
    """
    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    return {str(device): _reasons(device) for device in devices}


def warmup(device: torch.device | str | int | None = None) -> None:
    """Compile and load the default backend's kernels for a device, so that no later call pays for it.

    Compiling takes a few seconds. Call it before capturing a CUDA graph, because no code may be loaded during a capture;
    on the CPU, before forking workers, or to keep the first step fast. The `torch` backend needs no warm-up.

    Args:
        device: the device; None: the current CUDA device, or the CPU without CUDA.

    Raises:
        ValueError: `ALIGNPACK_BACKEND` names an unknown backend.
        RuntimeError: no backend, or not the named one, runs on the device; or a graph is being captured.

    Example:
        >>> warmup("cpu")
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.device(device)
    select_backend(None, target).warmup(target)


# Every call asks, and PyTorch makes a new string each time.
_device_type = functools.cache(lambda device: device.type)


def _serves(backend: Backend, device: torch.device) -> bool:
    return backend.device_type is None or backend.device_type == _device_type(device)


def _names() -> list[str]:
    return list(dict.fromkeys(backend.name for backend in BACKENDS))


def _why_not(name: str, device: torch.device) -> str | None:
    """Why the backend of that name does not run on a device, or None where it does."""
    same_name = [backend for backend in BACKENDS if backend.name == name]
    for backend in same_name:
        if _serves(backend, device):
            return backend.unavailable(device)
    return f"it runs on {' and '.join(str(backend.device_type) for backend in same_name)} only"


def _reasons(device: torch.device) -> dict[str, str | None]:
    return {name: _why_not(name, device) for name in _names()}


def _overview(device: torch.device) -> str:
    return ", ".join(
        f"{name!r} runs" if reason is None else f"{name!r} does not run ({reason})"
        for name, reason in _reasons(device).items()
    )
