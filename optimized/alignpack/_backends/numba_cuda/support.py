"""Whether Numba's kernels run on a CUDA device, and if not, what the user must install or update.

The checks run from cheap to costly, and the first that fails is the reason. They load Numba-CUDA, so only calls for a GPU
run them.
"""

import functools
import importlib
import importlib.metadata
from types import ModuleType

import torch

from alignpack._backends.forks import IMPORTING

FLOORS = {"numba-cuda": (0, 30, 4), "cuda-core": (1, 0)}
"""The oldest versions that were tested, as in the extras `cuda` and `cuda12`."""

LIBRARIES = ("nvvm", "nvrtc", "nvJitLink")
"""The libraries of the CUDA toolkit that compilation needs."""

OLDEST_CAPABILITY = 7, 5
"""The oldest compute capability that the current toolkits compile for."""


@functools.cache
def missing(device: torch.device) -> str | None:
    """Why the kernels do not run on a device, or None where they do. Every call asks; the answer is cached.

    Pass a device without an index only where CUDA is missing: otherwise the answer would be cached for whichever device is
    current.
    """
    if device.type != "cuda":
        return f"its type is {device.type}, not cuda"
    return _missing_software() or _missing_hardware(device)


def _missing_software() -> str | None:
    """What this process lacks, or None."""
    if torch.version.cuda is None:
        return "this PyTorch is built without CUDA"
    if (reason := _missing_packages()) is not None:
        return reason
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device"
    return _missing_libraries() or _old_driver()


def _missing_packages() -> str | None:
    extra = "cuda12" if (torch.version.cuda or "").startswith("12.") else "cuda"
    for package, floor in FLOORS.items():
        wanted = f"{package} >= {'.'.join(map(str, floor))}"
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{wanted} is not installed: python -m pip install 'alignpack[{extra}]'"
        if _numbers(version) < floor:
            return f"{wanted} is needed, {version} is installed: python -m pip install 'alignpack[{extra}]'"
    try:
        numba, numba_cuda, _ = (_load(name) for name in ("numba", "numba.cuda", "cuda.core"))
    except (ImportError, OSError) as error:  # OSError where a shared library is broken
        return f"Numba-CUDA cannot be imported: {error}"
    if numba.config.ENABLE_CUDASIM:
        return "Numba simulates CUDA in this process (NUMBA_ENABLE_CUDASIM)"
    if getattr(numba_cuda, "implementation", None) != "NVIDIA":
        return "Numba's built-in CUDA target is in the place of numba-cuda"
    return None


def _missing_libraries() -> str | None:
    pathfinder = _load("cuda.pathfinder")
    for library in LIBRARIES:
        try:
            pathfinder.load_nvidia_dynamic_lib(library)
        except (RuntimeError, OSError) as error:  # RuntimeError: not found; OSError: broken
            return f"the CUDA library {library} cannot be loaded: {' '.join(str(error).split())}"
    return None


def _old_driver() -> str | None:
    """A driver runs machine code of its own major version of CUDA and of older ones."""
    compiled_for = _load("cuda.bindings.nvjitlink").version()[0]
    _, version = _load("cuda.bindings.driver").cuDriverGetVersion()
    if version // 1000 < compiled_for:
        return (
            f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}, and the installed compiler is that of "
            f"CUDA {compiled_for}: update the driver, or install 'alignpack[cuda12]'"
        )
    return None


def _missing_hardware(device: torch.device) -> str | None:
    count = torch.cuda.device_count()
    if device.index >= count:
        return f"PyTorch finds {count} CUDA devices"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return "its compute capability is {}.{}, at least {}.{} is needed".format(*capability, *OLDEST_CAPABILITY)
    return None


def _load(module: str) -> ModuleType:
    with IMPORTING:
        return importlib.import_module(module)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, as integers."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
