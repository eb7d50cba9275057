"""The calls of a model as a graph of :mod:`torch.fx`, recorded without touching other models of the process."""

from typing import Any

__all__ = ["traced"]


def traced(model: Any) -> Any:
    """The graph of a model's ``forward``.

    ``torch.fx.symbolic_trace`` replaces methods of ``torch.nn.Module`` while it runs, also for the threads of other
    devices. Here, the modules of this model get a class that records their calls, and lose it again.

    Args:
        model: A ``torch.nn.Module`` that only this thread uses.

    Raises:
        Exception: Whatever ``forward`` does with the values that it is recorded with.
    """
    import torch

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
        tracer.create_node("output", "output", (tracer.create_arg(forward(*args)),), {})
    finally:
        for module, cls in classes.items():
            module.__class__ = cls
    return tracer.graph
