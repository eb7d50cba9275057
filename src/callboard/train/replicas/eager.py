"""Optimizers of torch without its compiler: importing that takes twice as long as torch itself, in every host.

The first optimizer of a process, and the first step of one, import ``torch._dynamo`` to tell it what not to compile.
Nothing is compiled here, so neither has to be told.
"""

import sys
from typing import Any

__all__ = ["as_eager", "spare_compiler"]

TOLD = "add_param_group", "load_state_dict", "state_dict"
"""Methods of an optimizer that import the compiler when they are first called."""


def spare_compiler() -> None:
    """Have the methods of optimizers not import the compiler, unless it is loaded."""
    import torch

    if "torch._dynamo" in sys.modules:
        return
    for name in TOLD:
        inner = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            inner.__dynamo_disable = inner  # what torch would put there, without its wrapper


def as_eager(optimizer: Any) -> Any:
    """The same optimizer, whose ``step`` does not import the compiler, if it is one of torch's."""
    import torch

    inner = getattr(type(optimizer).step, "__wrapped__", None)
    is_known = getattr(getattr(inner, "__code__", None), "co_name", "") == "_use_grad"
    if "torch._dynamo" in sys.modules or not is_known or optimizer.defaults.get("differentiable"):
        return optimizer
    step = torch.optim.Optimizer.profile_hook_step(torch.no_grad()(inner.__wrapped__))  # type: ignore[union-attr]
    optimizer.step = step.__get__(optimizer)
    return optimizer
