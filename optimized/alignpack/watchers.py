"""Who looks at a call: autograd, modes and transforms of PyTorch.

The place for private names of PyTorch (`docs/design.md` says what stands elsewhere). Where one of them is missing, every
call takes the long way, which is right for everybody.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad

try:
    from torch._C import _are_functorch_transforms_active as _transforms_active
    from torch._C import _DisableFuncTorch
    from torch._C import _len_torch_dispatch_stack as _dispatch_modes
    from torch._C._functorch import get_unwrapped as _get_unwrapped
    from torch._C._functorch import is_functorch_wrapped_tensor as _is_wrapped
    from torch._C._functorch import is_gradtrackingtensor as _is_watched
    from torch._C._functorch import is_legacy_batchedtensor as _is_batched
    from torch.utils._python_dispatch import _disable_current_modes

    COMPLETE = hasattr(forward_ad, "_current_level")
except ImportError:
    COMPLETE = False

_PLAIN = (torch.Tensor, torch.nn.Parameter)

_NOTHING = nullcontext()


def is_unwatched(values: torch.Tensor, index: torch.Tensor) -> bool:
    """Whether reading the memory of these values and this map, without a word to PyTorch, is noticed by nobody."""
    return (
        COMPLETE
        and not (values.requires_grad and torch.is_grad_enabled())
        and not _dispatch_modes()
        and not _transforms_active()
        and not dual_level_open()
        and type(values) in _PLAIN
        and type(index) is torch.Tensor
        and not values._is_zerotensor()  # a tangent of zeros has no memory
        # What `is_grads_batched` makes is no subclass, and no mode tells of it; nor is what a transform leaves behind
        # in a function that it returns.
        and not (_is_batched(values) or _is_wrapped(values))
        and not (_is_batched(index) or _is_wrapped(index))
    )


def dual_level_open() -> bool:
    """Whether values may carry tangents of forward-mode derivatives."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def transforms_active() -> bool:
    """Whether a transform of `torch.func` is running."""
    return not COMPLETE or _transforms_active()


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether it is what a transform of `torch.func` puts in a tensor's place."""
    return COMPLETE and _is_wrapped(tensor)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, where a derivative of `torch.func` watches it; what is batched stays wrapped."""
    while COMPLETE and _is_watched(tensor):
        tensor = _get_unwrapped(tensor)
    return tensor


def is_batched_gradient(tensor: torch.Tensor) -> bool:
    """Whether it stands for many gradients, as `is_grads_batched=True` makes them."""
    return COMPLETE and _is_batched(tensor)


def out_of_sight() -> AbstractContextManager[Any]:
    """A context in which tensors have values, and nobody sees them, whatever mode or transform is active outside."""
    modes, transforms = COMPLETE and _dispatch_modes(), COMPLETE and _transforms_active()
    if not (modes or transforms or torch.is_inference_mode_enabled()):
        return _NOTHING
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    if modes:
        stack.enter_context(_disable_current_modes())
    if transforms:
        stack.enter_context(_DisableFuncTorch())
    return stack


def fit_for_training() -> AbstractContextManager[Any]:
    """A context in which no tensor is one of inference mode: what is made of a layout there must serve training later."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():  # Dynamo cannot read the second
        return torch.inference_mode(False)
    return _NOTHING


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def outside_graphs(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Host work is not for compilers: a graph break. Disabled only where somebody compiles: that import takes seconds."""

    @wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if torch.compiler.is_compiling():
            result: _Result = torch.compiler.disable(function)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return run


_Function = TypeVar("_Function", bound=Callable[..., Any])


def constant_when_compiled(function: _Function) -> _Function:
    """Mark a function of plain values: compiled code holds its result, and its body is not traced.

    What `torch.compiler.assume_constant_result` does, without the seconds that importing the compiler costs.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
