"""The calls of a model as a graph of :mod:`torch.fx`, recorded without touching other models of the process."""

from collections.abc import Callable
from typing import Any

__all__ = ["CURE", "traced"]

RANDOM = frozenset({"bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm"})
"""Functions that draw, when they are called, numbers that a recording would have for ever."""

CURE = "a recording of its calls would have that once; pass a list of stages, each a torch.nn.Module"


def traced(model: Any) -> Any:
    """The graph of a model's ``forward``.

    ``torch.fx.symbolic_trace`` replaces methods of ``torch.nn.Module`` while it runs, also for the threads of other
    devices. Here, the modules of this model get a class that records their calls, and lose it again.

    Args:
        model: A ``torch.nn.Module`` that only this thread uses.

    Raises:
        TypeError: ``forward`` does what no call in the graph says: it changes a buffer, draws random numbers, or
            changes the mode of gradients or of autocast.
        Exception: Whatever ``forward`` does with the values that it is recorded with.
    """
    import torch

    before = dict(model.named_buffers())

    tracer: Any = torch.fx.Tracer()
    tracer.root = model
    tracer.root_module_name = type(model).__name__
    tracer.submodule_paths = {module: name for name, module in model.named_modules()}
    tracer.graph = torch.fx.Graph(tracer_cls=torch.fx.Tracer)
    tracer.tensor_attrs = {
        value: f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    }
    tracer.create_node = _in_one_mode(tracer.create_node)
    cache: dict[str, Any] = {}
    classes = {module: type(module) for module in tracer.submodule_paths}

    def recording(cls: Any) -> Any:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            return tracer.call_module(
                module, lambda *args, **kwargs: cls.__call__(module, *args, **kwargs), args, kwargs
            )

        def attribute(module: Any, name: str) -> Any:
            return tracer.getattr(name, cls.__getattr__(module, name), cache)

        return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__call__": call, "__getattr__": attribute})

    kinds = {cls: recording(cls) for cls in set(classes.values())}
    try:
        for module, cls in classes.items():
            module.__class__ = kinds[cls]
        forward, args = tracer.create_args_for_root(classes[model].forward, True)
        with _watching(before):
            tracer.create_node("output", "output", (tracer.create_arg(forward(*args)),), {})
    finally:
        for module, cls in classes.items():
            module.__class__ = cls
    for name, buffer in model.named_buffers():
        if buffer is not before.get(name):
            raise TypeError(f"it replaces the buffer {name!r}: {CURE}")
    return tracer.graph


def _in_one_mode(create: Callable[..., Any]) -> Callable[..., Any]:
    """``Tracer.create_node`` for calls in the modes of now only."""
    import torch

    def modes() -> tuple[bool, ...]:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")

    wanted = modes()

    def checked(*args: Any, **kwargs: Any) -> Any:
        if modes() != wanted:
            raise TypeError(f"it turns gradients or autocast on or off: {CURE}")
        return create(*args, **kwargs)

    return checked


def _watching(buffers: dict[str, Any]) -> Any:
    """A context in which buffers are not written and no random numbers are drawn."""
    import torch
    from torch.overrides import TorchFunctionMode

    names = {id(buffer): name for name, buffer in buffers.items()}

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = getattr(func, "__name__", ""), kwargs or {}
            if name in RANDOM and not any(isinstance(one, torch.fx.Proxy) for one in (*args, *kwargs.values())):
                raise TypeError(f"it draws random numbers (torch.{name}) outside a module: {CURE}")
            writes = name.startswith(("__i", "__set")) or (name.endswith("_") and not name.endswith("__"))
            if writes and args and id(args[0]) in names:
                raise TypeError(f"it writes the buffer {names[id(args[0])]!r}: {CURE}")
            return func(*args, **kwargs)

    return Watching()
