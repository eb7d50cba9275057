"""Limits of the fields of a configuration, as annotations: checked when one is made, and written into the reference."""

import functools
import math
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from callboard.realtime.base.checks import count, number, vector

__all__ = ["Limits", "Part", "Vector", "check_fields", "hints_of", "limits_of"]

Vector = tuple[float, float, float]


class Limits(NamedTuple):
    """What a number of a configuration may be: ``drag: Annotated[float, Limits("1/s", least=0)]``.

    Attributes:
        unit: In words; empty: a plain number.
        least, above, most: It is at least, more than, at most this.
        endless: It may be infinite.
    """

    unit: str = ""
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    endless: bool = False

    def __str__(self) -> str:
        parts = [f"≥ {self.least:g}"] * (self.least > -math.inf) + [f"> {self.above:g}"] * (self.above > -math.inf)
        most = f"2^{math.log2(self.most):g}" if self.most >= 1 << 20 else f"{self.most:g}"
        parts += [f"≤ {most}"] * (self.most < math.inf)
        return ", ".join(parts) + " or infinite" * self.endless


class Part(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of the objects in a configuration: forces, obstacles, sources. Their fields are checked when one is made."""

    def __post_init__(self) -> None:
        check_fields(self, f"{type(self).__name__}.")


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Types of the fields of a configuration, with their :class:`Limits`."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in msgspec.structs.fields(kind)}


def limits_of(hint: Any) -> tuple[Any, Limits]:
    """The type without its annotation, and the limits; those of no annotation are none."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, next((note for note in notes if isinstance(note, Limits)), Limits())
    return hint, Limits()


def check_fields(config: Any, prefix: str = "") -> None:
    """Check all numbers, vectors, names and parts of a configuration by the types of its fields.

    Args:
        prefix: Before the names of fields in errors.

    Raises:
        TypeError, ValueError, ShapeError: Names the field, its value and what it may be.
    """
    kind: Any = type(config)
    for name, hint in hints_of(kind).items():
        _check(f"{prefix}{name}", getattr(config, name), hint)


def _check(name: str, value: Any, hint: Any) -> None:
    kind, limits = limits_of(hint)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) and type(None) in inner:
        if value is None:
            return
        kind = next(one for one in inner if one is not type(None))
        kind, limits = (kind, limits) if limits != Limits() else limits_of(kind)
        origin, inner = get_origin(kind), get_args(kind)
    if kind is float:
        if not (limits.endless and value == math.inf):
            number(name, value, least=limits.least, above=limits.above, most=limits.most)
    elif kind is int:
        most = None if limits.most == math.inf else int(limits.most)
        count(name, value, least=int(limits.least) if limits.least > -math.inf else 1, most=most)
    elif kind is bool:
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r:.80}; pass True or False")
    elif origin is Literal:
        if value not in inner:
            raise ValueError(f"{name} is {value!r:.80}; use one of {', '.join(map(repr, inner))}")
    elif kind == Vector:
        vector(name, value)
    elif origin is tuple and inner[-1] is Ellipsis:
        _check_parts(name, value, inner[0])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r:.80}; pass a {kind.__name__}")


def _check_parts(name: str, value: Any, hint: Any) -> None:
    if isinstance(value, str) or not isinstance(value, tuple | list):
        raise TypeError(f"{name} is {value!r:.80}; pass a tuple")
    kind, _ = limits_of(hint)
    kinds = [one for one in get_args(kind) or (kind,) if isinstance(one, type)]
    for n, one in enumerate(value):
        if kinds and issubclass(kinds[0], msgspec.Struct):
            if not isinstance(one, tuple(kinds)):
                allowed = ", ".join(each.__name__ for each in kinds)
                raise TypeError(f"{name}[{n}] is {one!r:.80}; pass objects of {allowed}")
        else:
            _check(f"{name}[{n}]", one, hint)
