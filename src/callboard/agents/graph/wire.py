"""Values of a state as bytes: MessagePack; tuples, sets, arrays, dataclasses and others of that kind as extensions.

Nothing is pickled, and no module is imported for a name in the bytes: classes are those of loaded modules.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import sys
import uuid
from typing import Any

import msgspec
import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.ref.handle import GpuRef

__all__ = ["digest", "encode", "pack", "unpack"]

ARRAY, SCALAR, TUPLE, SET, FROZEN, COMPLEX, OBJECT, ENUM, TEXT, BIG, PAIRS = range(1, 12)
PLAIN = (str, bytes, bool, float, type(None))
TEXTS: dict[str, Any] = {
    "datetime": (dt.datetime, dt.datetime.fromisoformat, dt.datetime.isoformat),
    "date": (dt.date, dt.date.fromisoformat, dt.date.isoformat),
    "time": (dt.time, dt.time.fromisoformat, dt.time.isoformat),
    "uuid": (uuid.UUID, uuid.UUID, str),
    "decimal": (decimal.Decimal, decimal.Decimal, str),
}
encode = _encode = msgspec.msgpack.Encoder().encode
"""Bytes of what is made of texts, numbers, bytes, lists and dicts only."""
_Ext = msgspec.msgpack.Ext


def pack(value: Any) -> bytes:
    """The bytes of a value.

    Raises:
        TypeError: It holds something that is no data.
    """
    return _encode(value if type(value) in PLAIN else _plain(value))


def unpack(data: bytes) -> Any:
    """The value of the bytes.

    Raises:
        TypeError: They name a class that is not loaded.
    """
    return _decode(data)


def digest(value: Any) -> bytes:
    """A key of 128 bits of the contents of a value.

    Raises:
        TypeError: As for :func:`pack`.
    """
    return hashlib.blake2b(pack(value), digest_size=16).digest()


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else _Ext(BIG, str(value).encode())
    if kind is list:
        return [item if type(item) in PLAIN else _plain(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: item if type(item) in PLAIN else _plain(item) for key, item in value.items()}
        return _Ext(PAIRS, _encode([[_plain(key), _plain(item)] for key, item in value.items()]))
    if kind is tuple:
        return _Ext(TUPLE, _encode([_plain(item) for item in value]))
    return _extension(value, kind)


def _extension(value: Any, kind: type) -> Any:
    if kind in (set, frozenset):
        items = sorted(_encode(_plain(item)) for item in value)
        return _Ext(SET if kind is set else FROZEN, _encode(items))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        dtype = value.dtype.str if value.dtype.kind != "V" or value.dtype.names else value.dtype.name
        return _Ext(ARRAY, _encode([dtype, value.shape, np.ascontiguousarray(value).tobytes()]))
    if isinstance(value, np.generic):
        return _Ext(SCALAR, _encode([value.dtype.str, value.tobytes()]))
    if kind is complex:
        return _Ext(COMPLEX, _encode([value.real, value.imag]))
    if isinstance(value, enum.Enum):
        return _Ext(ENUM, _encode([_name(kind), _plain(value.value)]))
    for name, (cls, _, text) in TEXTS.items():
        if kind is cls:
            return _Ext(TEXT, _encode([name, text(value)]))
    if isinstance(value, GpuRef):
        raise TypeError(f"a GpuRef of {value.device} cannot be kept: await its get()")
    fields = _fields(value)
    if fields is None:
        raise TypeError(f"a {kind.__qualname__} is no data: {value!r:.100}")
    return _Ext(OBJECT, _encode([_name(kind), {name: _plain(item) for name, item in fields.items()}]))


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, a Struct, a named tuple or a pydantic model."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", None)) is not None:
        return dict(zip(fields, value, strict=True))
    names = getattr(type(value), "model_fields", None)
    return {name: getattr(value, name) for name in names} if isinstance(names, dict) else None


def _name(cls: type) -> str:
    if "<locals>" in cls.__qualname__:
        raise TypeError(f"class {cls.__qualname__} is local to a function and could not be found again; move it out")
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise TypeError(f"the bytes hold a {name}; import {module} first")
    return found


def _hook(code: int, data: memoryview) -> Any:
    match code:
        case 3:
            return tuple(_decode(data))
        case 4 | 5:
            items = [_decode(item) for item in _decode(data)]
            return set(items) if code == SET else frozenset(items)
        case 1:
            dtype, shape, content = _decode(data)
            return np.frombuffer(content, _dtype(dtype)).reshape(shape).copy()
        case 2:
            dtype, content = _decode(data)
            return np.frombuffer(content, _dtype(dtype))[0]
        case 6:
            return complex(*_decode(data))
        case 7:
            return _object(*_decode(data))
        case 8:
            name, value = _decode(data)
            return _class(name)(value)
        case 9:
            name, text = _decode(data)
            return TEXTS[name][1](text)
        case 10:
            return int(bytes(data))
        case 11:
            return dict(_decode(data))
    raise TypeError(f"the bytes hold an extension {code} that this version does not support")


def _object(name: str, fields: dict[str, Any]) -> Any:
    cls: Any = _class(name)
    known: Any = getattr(cls, "__dataclass_fields__", None)
    if known is not None:
        given = {field.name for field in known.values() if field.init}
        made: Any = cls(**{key: item for key, item in fields.items() if key in given})
        for key in fields.keys() - given:
            object.__setattr__(made, key, fields[key])
        return made
    if issubclass(cls, msgspec.Struct) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return cls(**fields)
    if isinstance(getattr(cls, "model_fields", None), dict):
        return cls(**fields)
    raise TypeError(f"the bytes hold a {name}, which is no class of data")


def _dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(name) if name[:1] in "<>|=" else as_dtype(name).np


_decode = msgspec.msgpack.Decoder(ext_hook=_hook).decode
