"""Functions of expressions that are written out as others."""

import math
from collections.abc import Callable, Mapping

from callboard.kernel.elementwise.tree import Apply, Literal, Tree

__all__ = ["SHORTHANDS"]


def _apply(name: str, *arguments: Tree) -> Tree:
    return Apply(name, arguments)


def _sigmoid(x: Tree) -> Tree:
    return _apply("divide", Literal(1.0), _apply("add", Literal(1.0), _apply("exp", _apply("negative", x))))


def _gelu(x: Tree) -> Tree:
    inner = _apply("erf", _apply("multiply", x, Literal(math.sqrt(0.5))))
    return _apply("multiply", _apply("multiply", Literal(0.5), x), _apply("add", Literal(1.0), inner))


def _clip(x: Tree, low: Tree, high: Tree) -> Tree:
    return _apply("minimum", _apply("maximum", x, low), high)


SHORTHANDS: Mapping[str, tuple[int, Callable[..., Tree]]] = {
    "clip": (3, _clip),
    "fma": (3, lambda x, y, z: _apply("add", _apply("multiply", x, y), z)),
    "gelu": (1, _gelu),
    "relu": (1, lambda x: _apply("maximum", x, Literal(0))),
    "sigmoid": (1, _sigmoid),
    "silu": (1, lambda x: _apply("multiply", x, _sigmoid(x))),
    "softplus": (1, lambda x: _apply("logaddexp", x, Literal(0.0))),
}
"""Number of arguments, and the expression that replaces the call. ``gelu`` is the variant with erf; ``fma`` is rounded
like a product and a sum, which a backend may contract."""
