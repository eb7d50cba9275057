"""Plugins: operators of a program's own, for callboard's engine."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.engine.mapped.tools import OPERATORS, PLUGINS, Operator, Tools

__all__ = ["IPluginV3", "register_plugin", "unregister_plugin"]

Infer = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Layout]]


@dataclass(frozen=True)
class IPluginV3:
    """An operator of a program's own.

    Attributes:
        domain: Domain of the operator in ONNX files; not ONNX's own.
        name: Its name.
        function: Computes it: called with a ref for each input (None for one that is left out) and the attributes as
            keywords, it returns a ref or a tuple of refs. Its parameters are checked against each node when a plan is
            built. It may call anything that takes refs: a ``@cb.kernel``, functions of ``dev.xp``, ops.
        infer: Layouts of the outputs, from those of the inputs (None for one that is left out) and the attributes. It
            may raise ``ShapeError``. The results of the function are compared with it. None: whatever the function
            returns is taken.
    """

    domain: str
    name: str
    function: Callable[..., Any] = field(repr=False)
    infer: Infer | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """Domain and name, as errors name the operator."""
        return f"{self.domain}.{self.name}"

    def __call__(self, tools: Tools, *inputs: Any, **attributes: Any) -> Any:
        """The outputs of a node.

        Raises:
            ShapeError: The function's results are not what ``infer`` says; names output, layout and expected layout.
        """
        refs = [None if each is None else tools.ref(each) for each in inputs]
        given = {name: each.decode() if isinstance(each, bytes) else each for name, each in attributes.items()}
        expected = None
        if self.infer is not None:
            expected = list(self.infer([None if each is None else each.layout for each in refs], given))
        title, count = tools.title, tools.outputs
        found = self.function(*refs, **given)
        outs = found if isinstance(found, tuple) else (found,)
        if len(outs) < count or not all(isinstance(each, Operand) for each in outs):
            kinds = ", ".join(type(each).__name__ for each in outs)
            raise ShapeError(f"{title}: the plugin {self.title} returned ({kinds}), expected {count} refs")
        for at, (out, layout) in enumerate(zip(outs, expected or (), strict=False)):
            if (out.dtype, out.shape) != (layout.dtype, layout.shape):
                raise ShapeError(
                    f"{title}: output {at} of the plugin {self.title} is {out.layout!r}; its infer says {layout!r}"
                )
        return outs[:count]


def register_plugin(
    domain: str, name: str, *, infer: Infer | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as an operator for ``engine="callboard"`` in this process: ``@register_plugin("my", "Own")``.

    A model with such an operator is built with this engine by default. A serialised plan does not contain the function:
    the process that loads it registers it first.

    Args:
        domain, name, infer: See :class:`IPluginV3`. Registering a name again replaces its function in later plans.

    Raises:
        ShapeError: The domain is ONNX's own.
    """
    if domain in ("", "ai.onnx") or f"{domain}.{name}" in OPERATORS:
        raise ShapeError(f"the domain {domain!r} is ONNX's own: use another for the plugin {name}")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        plugin = IPluginV3(domain, name, function, infer)
        PLUGINS[plugin.title] = Operator(plugin, 0, inspect.signature(function))
        return function

    return register


def unregister_plugin(domain: str, name: str) -> None:
    """Forget a plugin; plans that are built keep it.

    Raises:
        KeyError: There is none of this name.
    """
    del PLUGINS[f"{domain}.{name}"]
