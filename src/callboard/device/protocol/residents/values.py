"""Arguments and results of resident actors on their way between application and host, as plain data.

Types that msgspec supports keep their type (numbers, text, bytes, lists, tuples, dicts, sets, Structs, dataclasses,
named tuples, enums, dates, UUIDs, decimals), and so do models of pydantic. NumPy arrays, also of texts and bytes, may
appear anywhere inside them, and refs stand for device arrays. Any other value is refused by name before anything is
sent. Arrays, bytes and texts of more than :data:`INLINE` bytes travel in shared memory beside the message.

A value that is not a plain scalar becomes a list that begins with its kind, which distinguishes it from all others.
"""

import ast
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import ml_dtypes
import msgspec
import numpy as np

from callboard.device.protocol.residents import texts
from callboard.device.protocol.residents.classes import name_of

__all__ = [
    "INLINE",
    "MAX_BODY",
    "DeviceArray",
    "Packer",
    "StagedMemory",
    "Unpacker",
    "Unsendable",
    "decode",
    "encode",
    "inline",
]

Array = np.ndarray[Any, Any]

INLINE = 64 << 10
"""Up to this many bytes an array is part of the message: a slot and two more copies cost more."""

INLINE_ALL = 1 << 20
"""Bytes of all arrays that are sent inside one message, at most."""

MAX_BODY = 32 << 20
"""Bytes of a message without its staged arrays; half of the longest frame."""

GRANULE = 256

LIST, PLAIN, DICT, TUPLE, STRUCT, DATACLASS, NAMED, ENUM, ATOM, COMPLEX = range(10)
SET, FROZENSET, ARRAY, STAGED, BYTES, TEXT, REF, NUMBER, UNSET, BYTEARRAY = range(10, 20)
TEXTS, MODEL = 20, 21

_SCALARS = frozenset({bool, float, type(None)})
_ATOMS: tuple[type, ...] = (
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
    decimal.Decimal,
)
_TIMED = (dt.datetime, dt.time)  # msgspec leaves out the seconds of their offsets from UTC
_BUILTIN = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, BaseException)
_LOW_PRECISION = {
    name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
}  # NumPy has no notation of its own for these


_OF_OBJECTS = (
    "a NumPy array of Python objects cannot travel, unless all are str or bytes; pass a list, or another dtype"
)
_NOT_UNICODE = (
    "the text has lone surrogates, which no encoding carries (a file name that is not UTF-8?); pass bytes, "
    "as os.fsencode makes them"
)


class Unsendable(TypeError):
    """A value that cannot travel.

    Attributes:
        path: Location of the value within the argument: ``[2].name``.
        why: The value's type, and what to do.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path = ""
        self.why = why

    def at(self, step: str) -> "Unsendable":
        """The same, seen from one level up."""
        self.path = step + self.path
        return self


@functools.lru_cache(maxsize=256)
def _dtype_name(dtype: "np.dtype[Any]") -> str:
    if dtype.hasobject:
        raise Unsendable(_OF_OBJECTS)
    if dtype.names is None and dtype.subdtype is None:
        return dtype.name if dtype.name in _LOW_PRECISION else dtype.str
    try:
        return repr(np.lib.format.dtype_to_descr(dtype))
    except ValueError:
        raise Unsendable(
            f"a NumPy array whose fields overlap or are out of order cannot travel ({dtype}); copy it to an array with "
            "its fields in order"
        ) from None


@functools.lru_cache(maxsize=256)
def _dtype(name: str) -> "np.dtype[Any]":
    low: np.dtype[Any] | None = _LOW_PRECISION.get(name)
    if low is not None:
        return low
    dtype: np.dtype[Any]
    dtype = np.lib.format.descr_to_dtype(ast.literal_eval(name)) if name[0] in "[(" else np.dtype(name)
    if dtype.hasobject:  # its items are addresses
        raise TypeError(f"dtype {name} holds Python objects")
    return dtype


class DeviceArray:
    """An array that is not in host memory and arrives as a NumPy array: its items are copied when they are sent.

    Attributes:
        dtype, shape, nbytes: Properties of the array.
        read: Copies it to the row-major array that it is given, and returns when that is done.
    """

    __slots__ = ("dtype", "nbytes", "read", "shape")

    def __init__(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], read: Callable[[Array], object]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.read = read

    def __repr__(self) -> str:
        return f"<ctx.host {self.dtype}{list(self.shape)}>"


class StagedMemory(Protocol):
    """Location of staged bytes."""

    def array(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], offset: int) -> Array: ...


def inline(value: Array | DeviceArray) -> list[Any]:
    """An array as plain data, its items included; reads it, if it is elsewhere.

    Raises:
        Unsendable
    """
    dtype = _dtype_name(value.dtype)
    if isinstance(value, DeviceArray):
        array = np.empty(value.shape, value.dtype)
        value.read(array)
        value = array
    return [ARRAY, dtype, value.shape, value.tobytes()]


class Packer:
    """Takes values apart.

    Args:
        is_ref: Returns True if a value refers to a device array, which is kept in :attr:`refs`; its position is sent.
        with_code: Send the code of classes that the other end cannot import.
        cure: Advice for a value that cannot be sent, for the error.

    Attributes:
        refs: The device arrays, in order.
        nbytes: Bytes of shared memory that :meth:`stage` fills.
    """

    def __init__(self, is_ref: Callable[[Any], bool], with_code: bool, cure: str) -> None:
        self.refs: list[Any] = []
        self.nbytes = 0
        self._is_ref = is_ref
        self._with_code = with_code
        self._cure = cure
        self._inline = 0
        self._staged: list[tuple[int, Array | DeviceArray]] = []

    def pack(self, value: Any) -> Any:
        """The value as plain data.

        Raises:
            Unsendable
        """
        kind = type(value)
        if kind in _SCALARS:
            return value
        packed = _PACKED.get(kind)
        if packed is not None:
            return packed(self, value)
        return self._other(kind, value)

    def stage(self, memory: StagedMemory, copy: Callable[[Array, Array], None] = np.copyto) -> None:
        """Copy the staged arrays of the message, each with ``copy(target, source)``."""
        for offset, array in self._staged:
            target = memory.array(array.dtype, array.shape, offset)
            if isinstance(array, DeviceArray):
                array.read(target)
            else:
                copy(target, array)

    def beside(self, data: bytes) -> list[int]:
        """Let bytes travel beside the message; gives ``[offset, length]``."""
        return [self._beside(np.frombuffer(data, np.uint8)), len(data)]

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def _int(self, value: int) -> Any:
        if not -(1 << 63) <= value < 1 << 64:
            raise Unsendable(f"the integer {value:.6e} does not fit 64 bits; pass it as str or bytes")
        return value

    def _str(self, value: str) -> Any:
        if value.isascii() and len(value) <= INLINE // 4:
            return value
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise Unsendable(_NOT_UNICODE) from None
        return value if len(value) <= INLINE // 4 else [TEXT, *self.beside(data)]

    def _bytes(self, value: bytes) -> Any:
        if len(value) <= INLINE:
            return value
        return [BYTES, *self.beside(value)]

    def _bytearray(self, value: bytearray) -> Any:
        return [BYTEARRAY, self._bytes(bytes(value))]

    def _list(self, value: list[Any]) -> Any:
        if _SCALARS.issuperset(map(type, value)):
            return [PLAIN, value]
        return [LIST, self._items(value)]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        return [TUPLE, self._items(value)]

    def _items(self, values: Iterable[Any]) -> list[Any]:
        out: list[Any] = []
        try:
            out.extend(map(self.pack, values))
        except Unsendable as e:
            raise e.at(f"[{len(out)}]") from None
        return out

    def _set(self, value: Any) -> Any:
        return [SET if type(value) is set else FROZENSET, self._items(value)]

    def _dict(self, value: dict[Any, Any]) -> Any:
        out: list[Any] = [DICT]
        for key, item in value.items():
            try:
                out += (self.pack(key), self.pack(item))
            except Unsendable as e:
                raise e.at(f"[{key!r}]") from None
        return out

    def _array(self, value: Array | DeviceArray) -> Any:
        if value.dtype == object:
            return self._texts(value)
        if value.nbytes <= INLINE and self._inline + value.nbytes <= INLINE_ALL:
            self._inline += value.nbytes
            return inline(value)
        return [STAGED, _dtype_name(value.dtype), list(value.shape), self._beside(value)]

    def _texts(self, value: Any) -> Any:
        try:
            lengths, data = texts.joined(value)
        except UnicodeEncodeError:
            raise Unsendable(_NOT_UNICODE) from None
        except TypeError as e:
            raise Unsendable(f"{_OF_OBJECTS} ({e})") from None
        return [TEXTS, list(value.shape), self._array(lengths), self._bytes(data)]

    def _beside(self, array: Array | DeviceArray) -> int:
        offset = self.nbytes
        self._staged.append((offset, array))
        self.nbytes = -(-(offset + array.nbytes) // GRANULE) * GRANULE
        return offset

    def _atom(self, value: Any) -> Any:
        plain = value.isoformat() if isinstance(value, _TIMED) else msgspec.to_builtins(value)
        return [ATOM, _ATOMS.index(type(value)), plain]

    def _other(self, kind: type, value: Any) -> Any:
        if self._is_ref(value):
            self.refs.append(value)
            return [REF, len(self.refs) - 1]
        if isinstance(value, enum.Enum):
            return [ENUM, name_of(kind, self._with_code), self.pack(value.value)]
        if isinstance(value, msgspec.Struct):
            return [STRUCT, name_of(kind, self._with_code), *self._fields(value, kind.__struct_fields__)]  # type: ignore[attr-defined]
        if isinstance(value, np.generic):
            if value.dtype.hasobject:
                raise self._refused(value)
            return [NUMBER, _dtype_name(value.dtype), value.tobytes()]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if isinstance(value, _BUILTIN):
                raise Unsendable(
                    f"{kind.__module__}.{kind.__qualname__} is a dataclass that derives from a built-in class, whose "
                    "contents would be left out; pass its fields"
                )
            names = [f.name for f in dataclasses.fields(value)]
            return [DATACLASS, name_of(kind, self._with_code), *self._fields(value, names)]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return [NAMED, name_of(kind, self._with_code), *self._fields(value, kind._fields)]
        if hasattr(kind, "model_validate_json"):  # of pydantic; it arrives as it is, and is not validated again
            held: Any = value
            state = held.__getstate__()
            return [MODEL, name_of(kind, self._with_code), self._dict(state.pop("__dict__")), self._dict(state)]
        if isinstance(value, np.memmap):
            return self._array(value.view(np.ndarray))
        raise self._refused(value)

    def _fields(self, value: Any, names: Iterable[str]) -> list[Any]:
        out: list[Any] = []
        for name in names:
            try:
                out.append(self.pack(getattr(value, name)))
            except Unsendable as e:
                raise e.at(f".{name}") from None
        return out

    def _refused(self, value: Any) -> Unsendable:
        kind = type(value)
        return Unsendable(f"{kind.__module__}.{kind.__qualname__} cannot travel; {self._cure}")


_PACKED: dict[type, Callable[[Packer, Any], Any]] = {
    int: Packer._int,
    str: Packer._str,
    bytes: Packer._bytes,
    bytearray: Packer._bytearray,
    list: Packer._list,
    tuple: Packer._tuple,
    dict: Packer._dict,
    set: Packer._set,
    frozenset: Packer._set,
    np.ndarray: Packer._array,
    DeviceArray: Packer._array,
    complex: lambda self, value: [COMPLEX, value.real, value.imag],
    type(msgspec.UNSET): lambda self, value: [UNSET],
    **dict.fromkeys(_ATOMS, Packer._atom),
}


class Unpacker:
    """Puts values together again.

    Args:
        memory: Memory that holds the staged bytes; None when there are none.
        refs: Values that replace the refs, by position.
        classes: Finds the class of a name; that of the application imports nothing and loads no code.
    """

    def __init__(self, memory: StagedMemory | None, refs: "list[Any]", classes: Callable[[Any], type]) -> None:
        self._memory = memory
        self._refs = refs
        self._classes = classes

    def unpack(self, packed: Any) -> Any:
        """The value.

        Raises:
            ImportError: A class that is not known here.
            TypeError: A class is not of the kind that the encoded value declares.
        """
        if type(packed) is not list:
            return packed
        return _UNPACKED[packed[0]](self, packed)

    def _items(self, packed: list[Any]) -> list[Any]:
        return [self.unpack(item) for item in packed[1]]

    def _dict(self, packed: list[Any]) -> dict[Any, Any]:
        items = [self.unpack(item) for item in packed[1:]]
        return dict(zip(items[::2], items[1::2], strict=True))

    def _struct(self, packed: list[Any]) -> Any:
        cls = self._class(packed[1], "Struct")
        names = cls.__struct_fields__
        return cls(**{name: self.unpack(item) for name, item in zip(names, packed[2:], strict=True)})

    def _dataclass(self, packed: list[Any]) -> Any:
        cls = self._class(packed[1], "dataclass")
        made = object.__new__(cls)  # not its __init__, which may take other arguments and has run at the other end
        for field, item in zip(dataclasses.fields(cls), packed[2:], strict=True):
            object.__setattr__(made, field.name, self.unpack(item))
        return made

    def _model(self, packed: list[Any]) -> Any:
        cls: Any = self._class(packed[1], "model")
        made = cls.__new__(cls)
        made.__setstate__({"__dict__": self.unpack(packed[2]), **self.unpack(packed[3])})
        return made

    def _named(self, packed: list[Any]) -> Any:
        cls = self._class(packed[1], "named tuple")
        items = [self.unpack(item) for item in packed[2:]]
        if len(items) != len(cls._fields):
            raise TypeError(f"{cls.__qualname__} has {len(cls._fields)} fields, not {len(items)}")
        return tuple.__new__(cls, items)  # not its __new__, likewise

    def _enum(self, packed: list[Any]) -> Any:
        return self._class(packed[1], "Enum")(self.unpack(packed[2]))

    def _class(self, name: Any, kind: str) -> Any:
        cls = self._classes(name)
        if not _IS_KIND[kind](cls):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__} is not a {kind} class")
        return cls

    def _staged(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], offset: int) -> Array:
        assert self._memory is not None
        return self._memory.array(dtype, shape, offset)

    def _octets(self, packed: list[Any]) -> bytes:
        return self._staged(np.dtype(np.uint8), (packed[2],), packed[1]).tobytes()

    def _texts(self, packed: list[Any]) -> Array:
        return texts.split(self.unpack(packed[2]), self.unpack(packed[3]), tuple(packed[1]))


def _atom(kind: Any, plain: Any) -> Any:
    return kind.fromisoformat(plain) if kind in _TIMED else msgspec.convert(plain, kind)


_IS_KIND: dict[str, Callable[[type], bool]] = {
    "Struct": lambda cls: issubclass(cls, msgspec.Struct),
    "dataclass": dataclasses.is_dataclass,
    "model": lambda cls: hasattr(cls, "model_validate_json"),
    "named tuple": lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"),
    "Enum": lambda cls: issubclass(cls, enum.Enum),
}

_UNPACKED: dict[int, Callable[[Unpacker, list[Any]], Any]] = {
    LIST: Unpacker._items,
    PLAIN: lambda self, p: p[1],
    DICT: Unpacker._dict,
    TUPLE: lambda self, p: tuple(self._items(p)),
    STRUCT: Unpacker._struct,
    DATACLASS: Unpacker._dataclass,
    NAMED: Unpacker._named,
    ENUM: Unpacker._enum,
    ATOM: lambda self, p: _atom(_ATOMS[p[1]], p[2]),
    COMPLEX: lambda self, p: complex(p[1], p[2]),
    SET: lambda self, p: set(self._items(p)),
    FROZENSET: lambda self, p: frozenset(self._items(p)),
    ARRAY: lambda self, p: np.ndarray(p[2], _dtype(p[1]), bytearray(p[3])),
    STAGED: lambda self, p: self._staged(_dtype(p[1]), tuple(p[2]), p[3]),
    BYTES: Unpacker._octets,
    TEXT: lambda self, p: self._octets(p).decode(),
    REF: lambda self, p: self._refs[p[1]],
    NUMBER: lambda self, p: np.frombuffer(p[2], _dtype(p[1]))[0],
    UNSET: lambda self, p: msgspec.UNSET,
    BYTEARRAY: lambda self, p: bytearray(memoryview(self.unpack(p[1]))),
    TEXTS: Unpacker._texts,
    MODEL: Unpacker._model,
}

_encoder = msgspec.msgpack.Encoder()
decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


def encode(packed: Any, what: str) -> bytes:
    """Packed data as bytes.

    Raises:
        TypeError: A name among them (of a keyword, a class, a field) is not Unicode.
        ValueError: They are too many.
    """
    try:
        body = _encoder.encode(packed)
    except UnicodeEncodeError as e:
        raise TypeError(f"{what}: {e.object[:200]!a}: {_NOT_UNICODE}") from None
    if len(body) > MAX_BODY:
        raise ValueError(
            f"{what}: {len(body):,} bytes without arrays, at most {MAX_BODY:,}; "
            "pass arrays or bytes instead of many small objects"
        )
    return body
