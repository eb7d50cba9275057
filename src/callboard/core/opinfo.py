"""The declaration of a message class, read once per class: which fields are operands, numbers or settings.

A message is sent in two parts. The *signature* is everything that decides how it is executed (tag, settings, layouts of
the operands): equal signatures mean equal plans, so a context host keys its plans by the bytes of the signature and no
cache can miss a field. The rest changes from call to call: buffer ids, offsets and numbers.
"""

import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.layout import layout_from_wire
from callboard.core.operand import Operand, Placeholder, Role, StructOperand, parts_of, role_of
from callboard.core.settings import convert, converted, stored
from callboard.core.splitting import Kinds, Parts, is_cache_key, kinds_getter, splitter

__all__ = ["Leaf", "OpField", "OpInfo", "Parts"]

REAL, COMPLEX, INTEGER = 0, 1, 2  # how a number is marked in the signature: f64, c128, or i64 and u64
MARKED: dict[int, Any] = {REAL: 0.0, COMPLEX: 0j, INTEGER: 0}


class OpField(NamedTuple):
    """A field that changes from call to call: an operand, several of them, or a scalar."""

    name: str
    role: Role
    optional: bool
    many: bool
    """``tuple[In, ...]``, ``tuple[Number, ...]``"""
    structs: tuple[type[StructOperand], ...] = ()
    """The classes that it may have; its operands have their own roles if ``role`` is ``IN``, else this one."""
    takes: frozenset[Any] = frozenset()
    """Types of a scalar: ``int``, ``float``, ``complex``, ``Operand``."""


class Leaf(NamedTuple):
    """An operand or number of a message.

    Attributes:
        at: Position of its field among the dynamic ones.
        item: Position in that field; -1 if the leaf is the whole field.
        name: ``"a"``, or ``"a.indices"`` in a struct operand.
    """

    at: int
    item: int
    name: str
    role: Role
    value: Any


PLAIN = (bool, int, float, str, bytes, type(None))
"""Settings that are right if their type is."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class OpInfo:
    """The fields of one message class, and how to take messages of it apart and put them together again.

    Attributes:
        tag: The message's tag, ``"blas.gemm"``.
        library: The part of the tag before the dot.
        dynamic: Operands and scalars, in order of declaration: the arguments of a launch.
        statics: Names of the settings.
        split: Takes a message apart into :class:`Parts` (see the module's docstring).
        kinds: Returns the types of a message's fields: for a field of certain words, the word; for a tuple, the types
            of its items.
        accepted: Types of messages that have already passed validation, for messages whose validity depends on types
            alone.
    """

    def __init__(self, cls: type[Any], tag: str) -> None:
        self.tag = tag
        self.library = tag.partition(".")[0]
        hints = {name: stored(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
        self.fields: tuple[str, ...] = cls.__struct_fields__
        dynamic: list[OpField] = []
        statics: list[str] = []
        for name in self.fields:
            field = _dynamic(name, hints[name])
            if field is None:
                statics.append(name)
            else:
                dynamic.append(field)
        self.dynamic = tuple(dynamic)
        self.statics = tuple(statics)
        self.roles = {f.name: f.role for f in dynamic}
        self._hints = {n: hints[n] for n in statics}
        words = {name for name in statics if _any_part(_is_word, hints[name])}
        rows = {name for name in statics if _any_part(_is_row, hints[name])} | {
            field.name for field in dynamic if field.many
        }
        wholes = {field.name for field in dynamic if int in field.takes}
        nested = {name for name in statics if _any_part(_is_nest, hints[name])}
        reals = {name for name in statics if _is_real(hints[name])}
        self.kinds = kinds_getter(self.fields, words, rows, wholes, nested)
        self._statics = _getter(self.statics)
        self._dynamic = _getter(tuple(f.name for f in dynamic))
        # Whether the types of the fields decide that a message is valid, with whether integers fit into 64 bits; each
        # combination is then checked only once.
        self._by_type = all(map(_decided_by_type, self._hints.values()))
        self.accepted: set[Kinds] = set()
        self._statics_type: Any = tuple[tuple(hints[n] for n in statics)] if statics else tuple[()]  # type: ignore[misc]
        single = (
            all(map(_tellable, dynamic))
            and not any(f.many and (f.structs or Operand in f.takes) for f in dynamic)
            and all(is_cache_key(hint) for name, hint in self._hints.items() if name not in reals)
        )
        self.split: Callable[[Any], Parts] = (
            splitter(
                [(f.name, f.takes, f.structs, f.many) for f in dynamic],
                statics,
                lambda op: self._split(op).signature,
                reals,
            )
            if single
            else self._split
        )

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self, op: Any) -> None:
        """Normalise numbers in place (``np.float64`` to ``float``).

        Raises:
            TypeError: A field is of the wrong type; names it.
        """
        kinds = self.kinds(op)
        if kinds in self.accepted:
            return
        for field in self.dynamic:
            value = getattr(op, field.name)
            fixed = _checked_operand(self.tag, field, value)
            if fixed is not value:
                msgspec.structs.force_setattr(op, field.name, fixed)
        for name, hint in self._hints.items():
            value = getattr(op, name)
            fixed = _checked_static(self.tag, name, hint, value)
            if fixed is not value:
                msgspec.structs.force_setattr(op, name, fixed)
        if self._by_type and len(self.accepted) < 256 and kinds == self.kinds(op):
            self.accepted.add(kinds)

    # -- apart and together --------------------------------------------------------------------------------------------

    def _split(self, op: Any) -> Parts:
        skeleton: list[Any] = []
        operands: list[Any] = []
        numbers: list[int | float] = []
        for value in self._dynamic(op):
            kind = type(value)
            if kind is float or kind is int:
                skeleton.append(REAL if kind is float else INTEGER)
                numbers.append(value)
            elif value is None:
                skeleton.append(None)
            elif kind is complex:
                skeleton.append(COMPLEX)
                numbers += (value.real, value.imag)
            elif kind is tuple:
                marks: list[Any] = []
                for one in value:
                    if isinstance(one, Operand):
                        marks.append(one.layout.raw)
                        operands.append(one)
                    elif type(one) is complex:
                        marks.append(COMPLEX)
                        numbers += (one.real, one.imag)
                    else:
                        marks.append(INTEGER if type(one) is int else REAL)
                        numbers.append(one)
                skeleton.append(marks)
            elif isinstance(value, StructOperand):
                parts = parts_of(type(value))
                own = [getattr(value, name) for name, _ in parts.operands]
                for one in own:
                    if not isinstance(one, Operand):
                        raise TypeError(_wrong_part(self, op, one))
                settings = [getattr(value, name) for name in parts.settings]
                skeleton.append((parts.tag, settings, [v.layout.raw for v in own]))
                operands += own
            else:
                skeleton.append(value.layout.raw)
                operands.append(value)
        try:
            signature = _encode((self.tag, self._statics(op), skeleton))
        except OverflowError:
            raise ShapeError(f"{self.tag}: {self._too_long(op)}: an integer has at most 64 bits") from None
        return Parts(signature, operands, numbers)

    def _too_long(self, op: Any) -> str:
        """The setting that does not fit into 64 bits; a whole struct operand, if it is in one."""
        for name in (*self.statics, *(field.name for field in self.dynamic if field.structs)):
            value = getattr(op, name)
            given = (
                [getattr(value, n) for n in parts_of(type(value)).settings]
                if isinstance(value, StructOperand)
                else value
            )
            try:
                _encode(given)
            except OverflowError:
                return f"{name} = {given!r}"
        raise AssertionError("no setting is too long")

    def leaves(self, op: Any) -> Iterator[Leaf]:
        """The present operands and numbers, in order of declaration."""
        for at, (field, value) in enumerate(zip(self.dynamic, self._dynamic(op), strict=True)):
            if isinstance(value, tuple):
                for item, one in enumerate(value):
                    yield Leaf(at, item, field.name, field.role, one)
            elif isinstance(value, StructOperand):
                for item, (name, role) in enumerate(parts_of(type(value)).operands):
                    role = role if field.role is Role.IN else field.role
                    yield Leaf(at, item, f"{field.name}.{name}", role, getattr(value, name))
            elif value is not None:
                yield Leaf(at, -1, field.name, field.role, value)

    def called(self, leaf: Leaf) -> str:
        """The name of an operand in errors: ``"a"``, ``"a.indices"``, ``"operands[1]"``."""
        return f"{leaf.name}[{leaf.item}]" if self.dynamic[leaf.at].many else leaf.name

    def join(self, cls: type[Any], statics: Sequence[Any], skeleton: Sequence[Any]) -> Any:
        """The inverse of ``split`` in a context host: a message whose operands are placeholders, its numbers 0.

        Raises:
            ValueError: The parts do not fit the class (another version of it, or a broken frame).
        """
        if len(skeleton) != len(self.dynamic):
            raise ValueError(f"{self.tag}: {len(skeleton)} operands and scalars, {len(self.dynamic)} expected")
        try:
            values = dict(zip(self.statics, convert(statics, self._statics_type), strict=True))
        except msgspec.ValidationError as e:
            raise ValueError(f"{self.tag}: {e}") from e
        for field, mark in zip(self.dynamic, skeleton, strict=True):
            values[field.name] = _placeholder(field, mark)
        return cls(**values)


def read_signature(signature: bytes) -> tuple[str, Sequence[Any], Sequence[Any]]:
    """Tag, settings and skeleton of a signature.

    Raises:
        ValueError: Not a signature.
    """
    try:
        parts = _decode(signature)
    except msgspec.DecodeError as e:
        raise ValueError(f"broken signature: {e}") from e
    match parts:
        case [str(tag), list(statics), list(skeleton)]:
            return tag, statics, skeleton
    raise ValueError(f"broken signature: {parts!r:.80}")


def _placeholder(field: OpField, mark: Any) -> Any:
    match mark:
        case None if field.optional:
            return None
        case int() if mark in MARKED and type(MARKED[mark]) in field.takes:
            return MARKED[mark]
        case [str(tag), list(settings), list(marks)] if field.structs:
            return _struct_operand(field, tag, settings, marks)
        case [int(code), list(shape), list(strides)] if not field.many and not field.structs:
            return Placeholder(layout_from_wire(code, shape, strides))
        case list(many) if field.many:
            one = field._replace(many=False)
            return tuple(_placeholder(one, m) for m in many)
    raise ValueError(f"{field.name}: {mark!r:.80} is not an operand")


def _wrong_part(info: OpInfo, op: Any, part: Any) -> str:
    name = next(leaf.name for leaf in info.leaves(op) if leaf.value is part)
    return f"{info.tag}: {name} is {type(part).__name__}; pass a GpuRef (dev.put(array) makes one)"


def _struct_operand(field: OpField, tag: str, settings: list[Any], marks: list[Any]) -> StructOperand:
    cls = next((c for c in field.structs if parts_of(c).tag == tag), None)
    if cls is None:
        raise ValueError(f"{field.name}: {tag!r:.80} is not an operand")
    parts = parts_of(cls)
    if len(settings) != len(parts.settings) or len(marks) != len(parts.operands):
        raise ValueError(f"{field.name}: {len(settings)} settings and {len(marks)} operands are no {tag}")
    values = dict(zip(parts.settings, settings, strict=True))
    for (name, role), mark in zip(parts.operands, marks, strict=True):
        values[name] = _placeholder(OpField(f"{field.name}.{name}", role, optional=False, many=False), mark)
    try:
        return cls(**values)
    except TypeError as e:
        raise ValueError(f"{field.name}: {e}") from e


def _tellable(field: OpField) -> bool:
    return all(is_cache_key(hint) for cls in field.structs for hint in get_args(parts_of(cls).types))


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        one = operator.attrgetter(names[0])
        return lambda op: (one(op),)
    return operator.attrgetter(*names)


def _dynamic(name: str, hint: Any) -> OpField | None:
    """The field's role if its annotation has one: ``In``, ``In | None``, ``tuple[In, ...]``, a struct operand."""
    if isinstance(hint, type) and issubclass(hint, StructOperand):
        parts_of(hint)
        return OpField(name, Role.IN, optional=False, many=False, structs=(hint,))
    origin = get_origin(hint)
    if origin is Annotated:
        role = role_of(hint)
        inner = _dynamic(name, get_args(hint)[0])
        if inner is not None and inner.structs:
            return inner if role is None else inner._replace(role=role)
        takes = frozenset(get_args(get_args(hint)[0]) or get_args(hint)[:1]) if role is Role.SCALAR else frozenset()
        return None if role is None else OpField(name, role, optional=False, many=False, takes=takes)
    if origin is tuple:
        inner = _dynamic(name, get_args(hint)[0]) if get_args(hint) else None
        return None if inner is None else inner._replace(many=True)
    if origin in (Union, types.UnionType):
        args = get_args(hint)
        found = [f for a in args if a is not type(None) if (f := _dynamic(name, a))]
        if not found:
            return None
        structs = tuple(c for f in found for c in f.structs)
        return found[0]._replace(optional=type(None) in args or found[0].optional, structs=structs)
    return None


def _checked_operand(tag: str, field: OpField, value: Any) -> Any:
    if value is None and field.optional:
        return value
    if field.many:
        if not isinstance(value, tuple | list):
            what = "numbers" if field.role is Role.SCALAR else "GpuRefs"
            raise TypeError(f"{tag}: {field.name} is {type(value).__name__}; pass a tuple of {what}")
        return tuple(
            [
                v
                if _is_plain(field, v)
                else _checked_operand(tag, field._replace(name=f"{field.name}[{i}]", many=False), v)
                for i, v in enumerate(value)
            ]
        )
    if field.structs:
        if isinstance(value, field.structs):
            return value
        names = " or ".join(c.__name__ for c in field.structs)
        raise TypeError(f"{tag}: {field.name} is {type(value).__name__}; pass a {names}")
    if field.role is Role.SCALAR:
        return _checked_scalar(tag, field, value)
    if isinstance(value, Operand):
        return value
    raise TypeError(f"{tag}: {field.name} is {type(value).__name__}; pass a GpuRef (dev.put(array) makes one)")


def _is_plain(field: OpField, value: Any) -> bool:
    """Whether an entry of a tuple is what it must be, without a name for an error."""
    kind = type(value)
    if field.role is not Role.SCALAR:
        return isinstance(value, Operand)
    return kind in field.takes and (kind is float or (kind is int and -(2**63) <= value < 2**64))


def _checked_scalar(tag: str, field: OpField, value: Any) -> Any:
    if isinstance(value, Operand) and Operand in field.takes:
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, int | np.integer | np.bool_) and int in field.takes:
        whole = int(value)
        if -(2**63) <= whole < 2**64:
            return whole
        if float not in field.takes:
            raise ShapeError(f"{tag}: {field.name} is {whole}; it must lie between -2**63 and 2**64 - 1")
    if float not in field.takes:
        shown = f"{value!r}, of type " if isinstance(value, float | str) else ""
        raise TypeError(f"{tag}: {field.name} is {shown}{type(value).__name__}; pass an integer")
    if isinstance(value, complex | np.complexfloating):
        return complex(value)
    if isinstance(value, int | float | np.number | np.bool_):
        try:
            return float(value)
        except OverflowError:  # an int of more than a thousand bits
            raise OverflowError(f"{tag}: {field.name} is beyond 1.8e308, the largest number of f64") from None
    array = " or a 0-d GpuRef" if Operand in field.takes else ""
    raise TypeError(f"{tag}: {field.name} is {type(value).__name__}; pass a number{array}")


def _checked_static(tag: str, name: str, hint: Any, value: Any) -> Any:
    if _is_exact(hint, value):
        return value
    try:
        return converted(name, value, hint)
    except TypeError as e:
        raise TypeError(f"{tag}: {e}") from None


def _parts(hint: Any) -> tuple[Any, ...]:
    """The types that a union offers; of another type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _any_part(test: Callable[[Any], bool], hint: Any) -> bool:
    """True if one of them is so: ``_is_word`` of ``Literal["a", "b"] | None``."""
    return any(map(test, _parts(hint)))


def _decided_by_type(hint: Any) -> bool:
    return all(_is_told(part) or _is_word(part) or _is_row(part) or _is_nest(part) for part in _parts(hint))


def _is_told(hint: Any) -> bool:
    """True if the type of a value alone decides that it is valid."""
    return hint in PLAIN or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))


def _is_row(hint: Any) -> bool:
    """True if the types of its items decide that a setting is valid: ``tuple[int, ...]``."""
    return get_origin(hint) is tuple and all(item is ... or _is_told(item) for item in get_args(hint))


def _is_nest(hint: Any) -> bool:
    """True if also the item types of the tuples in it decide that: ``tuple[int | tuple[int, int], ...]``."""
    items = [item for item in get_args(hint) if item is not ...] if get_origin(hint) is tuple else []
    parts = [part for item in items for part in _parts(item)]
    return any(map(_is_row, parts)) and all(_is_told(part) or _is_row(part) for part in parts)


def _is_real(hint: Any) -> bool:
    """``float``, also with None."""
    return float in _parts(hint) and {*_parts(hint)} <= {float, type(None)}


def _is_word(hint: Any) -> bool:
    return get_origin(hint) is Literal and all(type(value) is str for value in get_args(hint))


def _is_exact(hint: Any, value: Any) -> bool:
    return isinstance(hint, type) and type(value) is hint
