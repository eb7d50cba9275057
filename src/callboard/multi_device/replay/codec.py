"""Messages and values as bytes: MessagePack, with arrays, references, errors and complex numbers as extensions.

Nothing is pickled, and no module is imported for names in a journal: classes are those of the actors' handlers, those
that the caller names, and those of loaded modules.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_origin

import msgspec
import numpy as np

from callboard.actors.errors import returned
from callboard.actors.messages import Message
from callboard.actors.refs import ActorRef
from callboard.core.dtype import as_dtype
from callboard.core.ref import GpuRef, GpuToken
from callboard.multi_device.replay.errors import NotRecordable

__all__ = ["Codec", "Parts", "binary", "contents_of", "dtype_named", "dtype_text", "joined", "name_of"]

ARRAY, SCALAR, TOO_LARGE, COMPLEX, ACTOR, ERROR, REF, ALIKE = range(1, 9)
LISTS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of a list in MessagePack; one of arrays that are alike is an extension."""
FIXED = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}
"""Headers of extensions of these sizes."""
FULL_VALUE = 512
"""Bytes of an output that are kept as they are; of longer ones the digest."""

SMALL = 1 << 16
"""Bytes up to which an array is copied before it is encoded."""

UNSENDABLE = (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError)
"""The exceptions raised when a value cannot be encoded for a journal."""

Parts = tuple[int, list[Any]]
"""Bytes that are to be joined once (:func:`joined`): their number, and ``bytes`` and arrays."""

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.decode


class Codec:
    """Encodes and decodes.

    Args:
        types: Classes by ``module:qualname``, before all others: those of functions, or under a new name.
        max_array_bytes: Arrays above that are recorded by their digest only, and cannot be replayed.
        resolve_ref: Makes a live ref of the token of a recorded one; its contents are not recorded.
        resolve_actor: Makes a reference to an actor of its path.
        redact: Called with each message and output; returns the value to record in its place.
    """

    def __init__(
        self,
        types: Mapping[str, type] | None = None,
        max_array_bytes: int = 64 << 20,
        resolve_ref: Callable[[GpuToken], GpuRef] | None = None,
        resolve_actor: Callable[[str], ActorRef[Any] | None] | None = None,
        redact: Callable[[Any], Any] | None = None,
    ) -> None:
        self.types = dict(types or {})
        self._resolve_actor = resolve_actor
        self._redact = redact
        self._resolve_ref = resolve_ref
        self._max_array_bytes = max_array_bytes
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._to_wire).encode
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}
        self._dtypes: dict[np.dtype[Any], str] = {}

    # -- to bytes ------------------------------------------------------------------------------------------------------

    def encode(self, value: Any) -> bytes:
        """The value as bytes.

        Raises:
            NotRecordable: It holds something that has no form on the wire; the text names its class.
        """
        cls, value = type(value), self._redacted(value)
        try:
            return self._plain(value)
        except UNSENDABLE as e:
            given = (
                cls.__qualname__
                if self._redact is None
                else f"{cls.__qualname__}, for which redact gave {value!r:.200},"
            )
            raise NotRecordable(f"{given} cannot be recorded: {e}") from e

    def output(self, value: Any) -> tuple[str, bytes]:
        """Class and fingerprint of an output: its bytes, or of a long one a digest; empty if it has none."""
        cls, value = type(value), self._redacted(value)
        try:
            data = self._plain(value)
        except UNSENDABLE:
            return name_of(cls), b""
        if len(data) > FULL_VALUE:
            data = b"\xc1" + hashlib.blake2b(data, digest_size=16).digest()  # 0xc1 begins no MessagePack value
        return name_of(cls), data

    def _redacted(self, value: Any) -> Any:
        return value if self._redact is None else self._redact(value)

    def _plain(self, value: Any) -> bytes:
        if type(value) is list and (parts := self._alike(value)) is not None:
            return joined(parts)
        return self._encode(value)

    def parts(self, value: Any) -> Parts | None:
        """A batch of arrays as the parts of its bytes, to be joined once; None: :meth:`encode` it."""
        return self._alike(value) if type(value) is list and self._redact is None else None

    def _alike(self, arrays: list[Any]) -> Parts | None:
        """A list of small arrays of one dtype and shape, as a batch often is, encoded at once; None: it is none."""
        first = arrays[0] if arrays else None
        if type(first) is not np.ndarray:
            return None
        dtype, shape, size = first.dtype, first.shape, len(arrays) * first.nbytes
        if dtype.hasobject or first.nbytes > SMALL or size > self._max_array_bytes:
            return None
        for a in arrays:
            if type(a) is not np.ndarray or (a.dtype is not dtype and a.dtype != dtype) or a.shape != shape:
                return None
        # By hand: each encoder around it would copy it, into memory that is new each time.
        head = b"".join((b"\x93", _pack(self._name(dtype)), _pack((len(arrays), *shape)), binary(size)))
        head = _extension(ALIKE, len(head) + size) + head
        return len(head) + size, [head, *arrays]

    def _to_wire(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(ARRAY, value)
        if isinstance(value, np.generic):
            plain = value.item()
            same = isinstance(plain, bool | int | float | str | bytes)
            return plain if same else self._array(SCALAR, np.asarray(value))
        if isinstance(value, complex):
            return msgspec.msgpack.Ext(COMPLEX, _pack((value.real, value.imag)))
        if isinstance(value, ActorRef):
            return msgspec.msgpack.Ext(ACTOR, value.path.encode())
        if isinstance(value, BaseException):
            return msgspec.msgpack.Ext(ERROR, _pack((name_of(type(value)), str(value))))
        if isinstance(value, GpuRef):
            return msgspec.msgpack.Ext(REF, _pack(value.token()))
        raise NotImplementedError(f"a {name_of(type(value))} has no form in a journal; send its data instead")

    def _array(self, code: int, array: np.ndarray[Any, Any]) -> msgspec.msgpack.Ext:
        if array.dtype.hasobject:
            raise NotImplementedError(f"an array of {array.dtype} has no form in a journal")
        dtype = self._name(array.dtype)
        if array.nbytes > self._max_array_bytes:
            digest = hashlib.blake2b(contents_of(array), digest_size=16).digest()
            return msgspec.msgpack.Ext(TOO_LARGE, _pack((dtype, array.shape, digest)))
        return msgspec.msgpack.Ext(code, _pack((dtype, array.shape, contents_of(array))))

    def _name(self, dtype: np.dtype[Any]) -> str:
        name = self._dtypes.get(dtype)
        if name is None:
            name = self._dtypes[dtype] = dtype_text(dtype)
        return name

    # -- from bytes ----------------------------------------------------------------------------------------------------

    def decode(self, name: str, data: bytes, known: Iterable[type] = ()) -> Any:
        """The value of the class ``name`` that these bytes are.

        Args:
            name: ``module:qualname``.
            data: Bytes from :meth:`encode`.
            known: Classes to look among first.

        Raises:
            NotRecordable: There is no such class, or the bytes do not encode one of its values.
        """
        return self.decode_as(self._class(name, known), data)

    def decode_as(self, cls: Any, data: bytes) -> Any:
        """The same for a class at hand; ``Any`` for the plain form."""
        if cls is list and data and data[0] not in LISTS:
            cls = Any
        decoder = self._decoders.get(cls)
        if decoder is None:
            try:
                made = msgspec.msgpack.Decoder(cls, dec_hook=_checked, ext_hook=self._from_wire)
            except (TypeError, NameError) as e:  # a field's class that cannot be looked up, or none that is known
                raise NotRecordable(f"{cls!r} cannot be decoded: {e}; declare it at the top of a module") from e
            decoder = self._decoders[cls] = made.decode
        try:
            return decoder(data)
        except msgspec.MsgspecError as e:
            if isinstance(e, msgspec.ValidationError) and isinstance(cls, type) and issubclass(cls, Message):
                return self._as_sent(cls, data)
            raise NotRecordable(f"the recorded value is no {getattr(cls, '__qualname__', cls)}: {e}") from e

    def _as_sent(self, cls: type[Message], data: bytes) -> Message:
        """A message of which a field had no value of its class: sending checks none, and its handler met it so."""
        try:
            values = _unpack(data, type=list, ext_hook=self._from_wire)[cls.__struct_config__.tag is not None :]
            fields = msgspec.structs.fields(cls)
            return cls(**{each.name: _fitting(each.type, value) for each, value in zip(fields, values, strict=True)})
        except (TypeError, ValueError, msgspec.MsgspecError) as e:
            raise NotRecordable(f"the recorded value is no {cls.__qualname__}: {e}") from e

    def show(self, name: str, data: bytes) -> str:
        """An output for people."""
        if not data:
            return f"a {name}"
        if data[:1] == b"\xc1":
            return f"a {name} (digest {data[1:9].hex()})"
        try:
            return f"{_unpack(data, ext_hook=self._shown)!r} ({name.rpartition(':')[2]})"
        except msgspec.MsgspecError:
            return f"a {name}"

    def _class(self, name: str, known: Iterable[type]) -> Any:
        found = self.types.get(name)
        if found is None:
            found = next((cls for cls in known if name_of(cls) == name), None)
        if found is None:
            module, _, path = name.partition(":")
            place: Any = sys.modules.get(module)
            for part in path.split("."):
                place = getattr(place, part, None)
            found = place if isinstance(place, type) else None
        if found is None:
            raise NotRecordable(f"the journal names the class {name}, which is not loaded: pass types={{{name!r}: …}}")
        return found

    def _from_wire(self, code: int, data: memoryview) -> Any:
        if code in (ARRAY, SCALAR):
            dtype, shape, content = _unpack(data)
            found = np.frombuffer(content, dtype_named(dtype)).reshape(shape)
            return found.copy() if code == ARRAY else found[()]
        if code == ALIKE:
            dtype, shape, content = _unpack(data)
            all_of_them = np.frombuffer(content, dtype_named(dtype)).reshape(shape)
            return [all_of_them[n, ...].copy() for n in range(shape[0])]
        if code == COMPLEX:
            return complex(*_unpack(data))
        if code == ACTOR:
            path = bytes(data).decode()
            ref = None if self._resolve_actor is None else self._resolve_actor(path)
            if ref is None:
                raise NotRecordable(f"a message holds a reference to {path}, and the replay has no such actor")
            return ref
        if code == ERROR:
            return self._error(*_unpack(data))
        if code == REF:
            token = _unpack(data, type=GpuToken)
            if self._resolve_ref is None:
                raise NotRecordable(f"a message holds a GpuRef of {token.device}: pass resolve_ref to make a live one")
            live: Any = self._resolve_ref(token)
            if not isinstance(live, GpuRef):
                raise returned("resolve_ref", live, "a GpuRef")
            return live
        if code == TOO_LARGE:
            dtype, shape, _ = _unpack(data)
            raise NotRecordable(f"an array of {shape}, {dtype}, was above max_array_bytes: its digest is recorded only")
        raise NotRecordable(f"the journal holds an extension {code} that this version does not support")

    def _shown(self, code: int, data: memoryview) -> Any:
        if code in (ARRAY, ALIKE):
            dtype, shape, content = _unpack(data)
            found = np.frombuffer(content, dtype_named(dtype)).reshape(shape)
            return found if code == ARRAY else list(found)
        if code == ERROR:
            name, text = _unpack(data)
            return f"{name.rpartition(':')[2]}: {text}"
        return bytes(data) if code == ACTOR else f"<{code}>"

    def _error(self, name: str, text: str) -> BaseException:
        try:
            cls = self._class(name, ())
            made = cls(text)
        except Exception:  # of any class: an error's constructor is the user's
            return RuntimeError(f"{name}: {text}")
        return made if isinstance(made, BaseException) else RuntimeError(f"{name}: {text}")


def joined(parts: Parts) -> bytes:
    """The bytes. An array is copied once; twice where it is not contiguous, or of a dtype that shows no buffer."""
    try:
        return b"".join(parts[1])
    except TypeError:
        return b"".join([part if type(part) is bytes else part.tobytes() for part in parts[1]])


def binary(size: int) -> bytes:
    """Return the MessagePack header of ``size`` bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1)
    return b"\xc5" + size.to_bytes(2) if size < 1 << 16 else b"\xc6" + size.to_bytes(4)


def _extension(code: int, size: int) -> bytes:
    """Return the MessagePack header of an extension of ``size`` bytes."""
    if size in FIXED:
        head = FIXED[size]
    elif size < 1 << 8:
        head = b"\xc7" + size.to_bytes(1)
    else:
        head = b"\xc8" + size.to_bytes(2) if size < 1 << 16 else b"\xc9" + size.to_bytes(4)
    return head + code.to_bytes(1)


def name_of(cls: type) -> str:
    """``module:qualname`` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def contents_of(array: np.ndarray[Any, Any]) -> bytes | memoryview:
    """Return the elements in C order; for a small array a copy, which takes less time than a view."""
    if array.nbytes <= SMALL:
        return array.tobytes()
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in a journal."""
    return dtype.str if dtype.kind != "V" or dtype.names else dtype.name


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of a name in a journal."""
    return np.dtype(name) if name[:1] in "<>|=" else as_dtype(name).np


def _fitting(expected: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, expected, dec_hook=_checked)
    except (msgspec.ValidationError, NotImplementedError, TypeError):
        return value


def _checked(expected: Any, value: Any) -> Any:
    cls = get_origin(expected) or expected
    if isinstance(cls, type) and isinstance(value, cls):
        return value
    if cls in (np.float16, np.float32, np.float64) or (isinstance(cls, type) and issubclass(cls, np.generic)):
        return cls(value)
    raise NotImplementedError(f"no {expected} can be made of a {type(value).__qualname__}")
