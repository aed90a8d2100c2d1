"""The target that a user names: one of this library's, a module, or a Python file."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from alignpack_fuzz.targets import ALIGNPACK, BACKENDS, REFERENCE, ModuleTarget, Target

SIMULATED = "alignpack:backend=numba-sim"
"""What users call the CUDA kernels in Numba's simulator; the process must simulate, see `alignpack_fuzz.simulator`."""


def find_target(description: str) -> Target:
    """The target that a user names.

    Args:
        description: `reference`; `alignpack`, which is any backend that runs; `alignpack:backend=NAME`;
            `alignpack:backend=numba-sim`, the CUDA kernels where Numba simulates them; or an importable module or a
            Python file that has a `packed_layout`.

    Raises:
        ValueError: there is no such target.
    """
    if description == REFERENCE.name:
        return REFERENCE
    for target in (ALIGNPACK, *BACKENDS):
        if description == target.name:
            return target
    if description == SIMULATED:
        from alignpack_fuzz.simulator import simulated_target  # which needs Numba

        return simulated_target()
    if description.startswith("alignpack:"):
        raise ValueError(f"{description} is not one of {', '.join([*(target.name for target in BACKENDS), SIMULATED])}")
    module = load_file(Path(description)) if description.endswith(".py") else _load_module(description)
    if not callable(getattr(module, "packed_layout", None)):
        raise ValueError(f"{description} has no function packed_layout")  # noqa: TRY004 - the name is wrong
    gather = getattr(module, "gather_sequence", None)
    return ModuleTarget(description, module.packed_layout, gather_sequence=gather)


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{name!r} is not the name of a module, nor of a file that ends in .py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(f"there is no module {name}") from None
        raise  # the module is there, but something that it imports is not


def load_file(path: Path) -> ModuleType:
    """A Python file as a module that no other import finds.

    Raises:
        ValueError: there is no such file, or it is not a Python file.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
