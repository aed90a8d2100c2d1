"""A valid call of `packed_layout`, for tests that change one argument of it."""

from typing import Any

import torch


def table(entries: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(entries, dtype=dtype)


def arguments(**changes: Any) -> dict[str, Any]:
    """The keyword arguments of a valid call, with changes."""
    valid = {"seq_lens": table([[3, 2]]), "seq_lens_padded": table([[4, 4]]), "input_shape": (1, 8), "alignment": 4}
    return valid | changes
