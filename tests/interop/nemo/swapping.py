"""alignpack in the place of NeMo's packing module, for the length of a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from nemo_automodel.components.models.deepseek_v41 import attention, cp, model

import alignpack
from alignpack.context_parallel import gather_sequence


@contextmanager
def swapped() -> Iterator[None]:
    """Every name that docs/nemo.md replaces is alignpack's."""
    with (
        mock.patch.object(cp, "packed_layout", alignpack.packed_layout),
        mock.patch.object(model, "packed_layout", alignpack.packed_layout),
        mock.patch.object(attention, "gather_sequence", gather_sequence),
        mock.patch.object(cp, "gather_sequence", gather_sequence),
        mock.patch.object(model, "gather_sequence", gather_sequence),
    ):
        yield
