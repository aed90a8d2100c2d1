"""A whole model on packed rows, with NeMo's packing module and with alignpack in its place: equal bit for bit."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from nemo_automodel.components.moe.parallelizer import apply_ac

from tests.interop.nemo.model import LENGTHS, VOCABULARY, tiny_model
from tests.interop.nemo.swapping import swapped

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("recompute", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("layers", [6, 40])
@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_loss_logits_and_gradients_are_equal(
    layers: int, recompute: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIGNPACK_BACKEND", backend)
    padded = [length + extra for length, extra in zip(LENGTHS, (0, 2, 1, 0), strict=True)]
    ids = torch.randint(0, VOCABULARY, (2, sum(padded)), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([LENGTHS, (17, 1, -1000, 9)])
    spans = torch.tensor([padded, (17, 3, 0, 9)])

    def run(swap: AbstractContextManager[None]) -> dict[str, torch.Tensor]:
        model = tiny_model(seed=0, layers=layers)
        if recompute:
            apply_ac(model, activation_checkpointing_scope="language")
        with swap:
            output = model(ids, seq_lens=lengths, seq_lens_padded=spans, labels=ids)
            output.loss.backward()
        found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        return found | {"loss": output.loss, "logits": output.logits}

    theirs, ours = run(nullcontext()), run(swapped())
    assert list(ours) == list(theirs)
    assert len(ours) > 50
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
        assert name == "loss" or tensor.isfinite().all(), name
