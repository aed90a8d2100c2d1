"""What runs where, and making it ready before it is needed."""

import torch

from alignpack.implementations import BACKENDS, numba_cuda, select_backend
from alignpack.layout import packed_layout


def backends() -> dict[str, dict[str, str | None]]:
    """For the CPU and each CUDA device, the backends in the order in which a call tries them, and why one does not run.

    Returns:
        By device and name of the backend: None where it runs, otherwise the reason.

    Example:
        >>> backends()["cpu"]
        {'numba': None, 'torch': None}
    """
    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    return {
        str(device): {name: backend.unavailable(device) for name, backend in BACKENDS.items()} for device in devices
    }


def warmup(device: torch.device | str | int | None = None) -> None:
    """Compile and load what the default backend runs on a device, so that no later call pays for it.

    Compiling takes a few seconds. A CUDA graph can only be captured afterwards, because no code may be loaded during a
    capture; on the CPU it is for processes that fork workers, and for the first step's time. Where PyTorch serves the
    device, nothing has to be made ready.

    Args:
        device: the device; None: the current CUDA device, or the CPU if there is none.

    Raises:
        ValueError: `ALIGNPACK_BACKEND` names no backend.
        RuntimeError: no backend, or not that one, runs on the device; or a graph is being captured.

    Example:
        >>> warmup("cpu")
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.device(device)
    if select_backend(None, target).name != "numba":
        return
    if target.type == "cuda":
        numba_cuda.warmup(target)
    else:
        layout = packed_layout(torch.tensor([[1]], device="cpu"), None, (1, 1), 1, device=target)
        layout.pack(torch.zeros(1, 1, device=target))
        layout.groups(1)
        layout.shift(1)
