"""Extents as formulas of other extents: ``h - 2``, ``(n + 255) // 256``.

Integers, names, ``+ - * // %``, brackets, ``min`` and ``max``; nothing else is evaluated.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["evaluate", "names_in", "parsed"]

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """The formula.

    Raises:
        ValueError: The text is not a formula; names what is expected.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        tree = None
    if tree is None or not _is_formula(tree):
        raise ValueError(f"{text!r} is not an extent; use integers, names, + - * // %, min and max")
    return tree


def names_in(text: str) -> set[str]:
    """The names that a formula refers to."""
    functions = {id(node.func) for node in ast.walk(parsed(text)) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name) and id(node) not in functions}


def evaluate(text: str, extents: Mapping[str, int]) -> int:
    """The value of a formula.

    Raises:
        ValueError: A name has no value, or a division is by zero.
    """
    try:
        return _value(parsed(text), extents)
    except KeyError as e:
        raise ValueError(f"{text!r}: {e.args[0]} is not defined") from None
    except ZeroDivisionError:
        raise ValueError(f"{text!r} divides by zero") from None


def _is_formula(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Name():
            return True
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in _OPERATORS and _is_formula(left) and _is_formula(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_formula(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _FUNCTIONS and bool(args) and all(map(_is_formula, args))
    return False


def _value(node: ast.expr, extents: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return extents[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, extents), _value(right, extents))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, extents)
        case ast.Call(func=ast.Name(id=name), args=args):
            values: list[Any] = [_value(arg, extents) for arg in args]
            return _FUNCTIONS[name](*values) if len(values) > 1 else values[0]
    raise AssertionError("parsed formulas have no other nodes")
