"""Generated code that takes the messages of a class apart.

A loop over the fields of a message would cost more than the work on each of them. These functions are therefore
generated, one pair per class, as the standard library does for dataclasses: a line per field, and a cache of the
results for earlier messages with the same settings and layouts.
"""

import types
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from callboard.core.operand import StructOperand, parts_of

__all__ = ["Kinds", "Parts", "is_cache_key", "kinds_getter", "splitter"]

MAX_SIGNATURES = 8192
"""Signatures cached for one class; when there are more, the cache is cleared."""

Kinds = tuple[Any, ...]
"""The types of a message's fields: for each field a type, a word, True, or a tuple of these for its items."""


class Parts(NamedTuple):
    """A message, taken apart."""

    signature: bytes
    operands: list[Any]
    """The present operands, in order of declaration."""
    numbers: list[int | float]
    """The present numbers, typed: f64, or i64 and u64 as integers; a c128 is two f64."""


def kinds_getter(
    fields: Sequence[str],
    words: Container[str] = (),
    rows: Container[str] = (),
    wholes: Container[str] = (),
    nested: Container[str] = (),
) -> Callable[[Any], Kinds]:
    """A function that returns the types of these fields of a message.

    A field in ``words`` contributes its value if that is a string, and a field in ``rows`` the types of its items if it
    is a tuple. A field in ``nested`` also contributes the item types of the tuples in it. A field in ``wholes``
    contributes True if it is an integer of 64 bits, signed or not. Fields in both ``rows`` and ``wholes`` are tuples of
    such integers.
    """

    def of_field(name: str) -> str:
        if name in rows and name in wholes:
            item = f"type(n) is int and {-(2**63)} <= n < {2**64} or type(n)"
            return f"tuple([{item} for n in op.{name}]) if type(op.{name}) is tuple else type(op.{name}), "
        if name in wholes:
            return f"type(op.{name}) is int and {-(2**63)} <= op.{name} < {2**64} or type(op.{name}), "
        if name in words:
            return f"op.{name} if type(op.{name}) is str else type(op.{name}), "
        if name in nested:
            return f"nest(op.{name}) if type(op.{name}) is tuple else type(op.{name}), "
        if name in rows:
            return f"tuple(map(type, op.{name})) if type(op.{name}) is tuple else type(op.{name}), "
        return f"type(op.{name}), "

    return _made(f"def kinds(op):\n return ({''.join(map(of_field, fields))})", "kinds", {"nest": _nest})


def _nest(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_nest(item) if type(item) is tuple else type(item) for item in value])


def splitter(
    dynamic: Sequence[tuple[str, Collection[Any], Sequence[type[StructOperand]], bool]],
    statics: Sequence[str],
    signature_of: Callable[[Any], bytes],
    reals: Container[str] = (),
) -> Callable[[Any], Parts]:
    """A function that takes a message apart: its signature, its operands and its numbers.

    Args:
        dynamic: Operands, scalars (with the types that they take), struct operands (with their classes), and whether it
            is a tuple: of operands, or of numbers.
        statics: Settings, all :func:`is_cache_key` but ``reals``.
        signature_of: Works a signature out; asked once for all messages with equal settings, layouts and kinds of
            numbers.
        reals: Settings that are floats or None: ``0.0`` and ``-0.0``, which are equal, are represented by words in a
            key.
    """
    signatures: dict[tuple[Any, ...], bytes] = {}

    def learn(key: tuple[Any, ...], op: Any) -> bytes:
        if len(signatures) >= MAX_SIGNATURES:
            signatures.clear()
        signature = signatures[key] = signature_of(op)
        return signature

    lines = ["def split(op):", " operands = []", " numbers = []"]
    listers = {cls: _lister(cls) for _, _, structs, _ in dynamic for cls in structs}
    for i, (name, takes, structs, many) in enumerate(dynamic):
        lines.append(f" v{i} = op.{name}")
        lines.append(f" if v{i} is not None:")
        operand = [f"operands.append(v{i})", f"v{i} = v{i}.layout.wire"]
        if many and takes:
            lines.append(f"  kinds = tuple(map(type, v{i}))")
            lines.append(f"  if complex not in kinds: numbers += v{i}")
            lines.append(
                f"  else: numbers += [p for n in v{i} for p in ((n.real, n.imag) if type(n) is complex else (n,))]"
            )
            lines.append(f"  v{i} = kinds")
        elif many:
            lines.append(f"  operands += v{i}; v{i} = tuple([o.layout.wire for o in v{i}])")
        elif takes:
            lines.append(f"  kind = type(v{i})")
            lines.append(f"  if kind is float: numbers.append(v{i}); v{i} = float")
            if int in takes:
                lines.append(f"  elif kind is int: numbers.append(v{i}); v{i} = int")
            lines.append(f"  elif kind is complex: numbers += (v{i}.real, v{i}.imag); v{i} = complex")
            lines.append(f"  else: {'; '.join(operand)}")
        elif structs:
            lines.append(f"  v{i} = listers[type(v{i})](v{i}, operands)")
        else:
            lines += (f"  {line}" for line in operand)
    told = [f"op.{name} or str(op.{name}), " if name in reals else f"op.{name}, " for name in statics]
    key = "".join([f"v{i}, " for i in range(len(dynamic))] + told)
    lines += [
        f" key = ({key})",
        " signature = signatures.get(key)",
        " if signature is None: signature = learn(key, op)",
    ]
    lines.append(" return new(Parts, (signature, operands, numbers))")  # its own constructor costs twice as much
    given = {"signatures": signatures, "learn": learn, "new": tuple.__new__, "Parts": Parts, "listers": listers}
    return _made("\n".join(lines), "split", given)


def _lister(cls: type[StructOperand]) -> Callable[[Any, list[Any]], Any]:
    """A function that lists the operands of a struct operand and the key of its part of the signature.

    It gives None for one that has arrays where operands should be: computing the signature raises the error then.
    """
    parts = parts_of(cls)
    names = [name for name, _ in parts.operands]
    listed = "".join(f"value.{name}, " for name in names)
    wires = "".join(f"value.{name}.layout.wire, " for name in names)
    settings = "".join(f"value.{name}, " for name in parts.settings)
    lines = [
        "def lister(value, operands):",
        f" operands += ({listed})",
        f" try: return (cls, {wires}{settings})",
        " except AttributeError: return None",
    ]
    return _made("\n".join(lines), "lister", {"cls": cls})


def is_cache_key(hint: Any) -> bool:
    """True if a checked setting of this type can be part of a key: equal values are interchangeable.

    ``0.0`` and ``-0.0``, or ``1`` and ``True``, are equal but not the same; lists cannot be keys. A frozen struct is
    is_cache_key if its fields are.
    """
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint.__struct_config__.frozen:
        return all(map(is_cache_key, get_type_hints(hint).values()))
    kinds = set(_kinds(hint))
    return kinds <= {bool, int, str, bytes, type(None)} and not {bool, int} <= kinds


def _kinds(hint: Any) -> list[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return [kind for one in arguments for kind in _kinds(one)]
    if origin is Literal:
        return [type(value) for value in arguments]
    if origin is tuple:
        return [kind for one in arguments if one is not ... for kind in _kinds(one)]
    if (
        isinstance(hint, type)
        and issubclass(hint, msgspec.Struct)
        and hint.__struct_config__.frozen
        and is_cache_key(hint)
    ):
        return [str]  # as good as a word: no other kind of value equals it
    return [hint]


def _made(source: str, name: str, given: dict[str, Any]) -> Callable[..., Any]:
    exec(source, given)  # of the names of a message's fields, and nothing else
    made: Callable[..., Any] = given[name]
    return made
