"""What PyTorch is doing around a call: autograd, dispatch modes, `torch.func` transforms, compilation.

PyTorch's private names are used here (`docs/design.md` lists the few used elsewhere). Where one is missing, every call
takes the general path, which is right in every state.
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
    from torch._C._functorch import is_gradtrackingtensor as _is_grad_tracking
    from torch._C._functorch import is_legacy_batchedtensor as _is_batched
    from torch.utils._python_dispatch import _disable_current_modes

    PRIVATE_NAMES_FOUND = hasattr(forward_ad, "_current_level")
except ImportError:
    PRIVATE_NAMES_FOUND = False

_PLAIN = (torch.Tensor, torch.nn.Parameter)

_NOTHING = nullcontext()


def can_bypass_dispatcher(values: torch.Tensor, index: torch.Tensor) -> bool:
    """Whether nothing intercepts operations on these tensors, so that their memory may be read directly."""
    return (
        PRIVATE_NAMES_FOUND
        and not (values.requires_grad and torch.is_grad_enabled())
        and not _dispatch_modes()
        and not _transforms_active()
        and not forward_ad_active()
        and type(values) in _PLAIN
        and type(index) is torch.Tensor
        and not values._is_zerotensor()  # a zero tangent has no memory
        # Tensors made by `is_grads_batched` are not a subclass and no mode is on; the same holds for a tensor that
        # outlives its transform.
        and not (_is_batched(values) or _is_wrapped(values))
        and not (_is_batched(index) or _is_wrapped(index))
    )


def forward_ad_active() -> bool:
    """Whether forward-mode differentiation is on, so that values may carry tangents."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def transforms_active() -> bool:
    """Whether a transform of `torch.func` is running."""
    return not PRIVATE_NAMES_FOUND or _transforms_active()


def is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a transform of `torch.func` wraps the tensor."""
    return PRIVATE_NAMES_FOUND and _is_wrapped(tensor)


def without_grad_wrappers(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside the wrappers of `torch.func.grad`, `jvp` and the like; a batched tensor stays wrapped."""
    while PRIVATE_NAMES_FOUND and _is_grad_tracking(tensor):
        tensor = _get_unwrapped(tensor)
    return tensor


def is_legacy_batched(tensor: torch.Tensor) -> bool:
    """Whether it is a batched tensor of the old `vmap`, which `is_grads_batched=True` makes."""
    return PRIVATE_NAMES_FOUND and _is_batched(tensor)


def without_modes_and_transforms() -> AbstractContextManager[Any]:
    """A context without dispatch modes, transforms and inference mode, in which new tensors are plain tensors."""
    modes, transforms = PRIVATE_NAMES_FOUND and _dispatch_modes(), PRIVATE_NAMES_FOUND and _transforms_active()
    if not (modes or transforms or torch.is_inference_mode_enabled()):
        return _NOTHING
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    if modes:
        stack.enter_context(_disable_current_modes())
    if transforms:
        stack.enter_context(_DisableFuncTorch())
    return stack


def without_inference_mode() -> AbstractContextManager[Any]:
    """A context without inference mode, in which new tensors may serve training later."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():  # Dynamo cannot read the second
        return torch.inference_mode(False)
    return _NOTHING


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def graph_break(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run a host function eagerly in compiled code too: a graph break."""
    reason = (
        f"{function.__name__} is host work: call it outside of code compiled with fullgraph=True and pass in its result"
    )

    # `torch.compiler.disable` imports the compiler, which takes seconds, so only while compiling.
    @wraps(function)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if torch.compiler.is_compiling():
            torch._dynamo.graph_break(msg=reason)  # with fullgraph=True an error, which shows the reason
            result: _Result = torch.compiler.disable(function)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return run


_Function = TypeVar("_Function", bound=Callable[..., Any])


def assume_constant_result(function: _Function) -> _Function:
    """Mark a function of plain values: compiled code holds its result as a constant and does not trace it.

    The same as `torch.compiler.assume_constant_result`, without importing the compiler, which takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
