"""What runs where, and making it ready before it is needed."""

import torch

from alignpack.backends import BACKENDS, numba_cuda, select_backend


def overview() -> dict[str, dict[str, str | None]]:
    """For the CPU and each CUDA device, the backends in the order in which a call tries them, and why one does not run.

    Returns:
        By device and name of the backend: None where it runs, otherwise the reason.

    Example:
        >>> overview()["cpu"]
        {'numba': None, 'torch': None}
    """
    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    return {
        str(device): {name: backend.unavailable(device) for name, backend in BACKENDS.items()} for device in devices
    }


def warmup(device: torch.device | str | int | None = None) -> None:
    """Compile and load what the default backend runs on a device, so that no later call pays for it.

    The kernels for a GPU take a few seconds. A CUDA graph can only be captured afterwards, because no code may be loaded
    during a capture. On the CPU nothing has to be made ready, and where PyTorch serves the device, nothing is done.

    Args:
        device: a CUDA device; None: the current one, if there is any.

    Raises:
        RuntimeError: no backend runs on the device, or a graph is being captured.

    Example:
        >>> warmup("cpu")
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.device(device)
    if target.type == "cuda" and select_backend(None, target).name == "numba":
        numba_cuda.warmup(target)
