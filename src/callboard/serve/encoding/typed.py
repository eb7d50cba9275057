"""``Kind``: a type of the application as JSON, read and written: one of msgspec's, or a model of pydantic.

Pydantic is not imported here: its models are known by their methods.
"""

from collections.abc import Callable
from typing import Any, is_typeddict

import msgspec
import numpy as np

from callboard.serve.errors import BadModelResult, BadRequest

__all__ = ["REFERENCE", "Kind", "Schemas"]

Schemas = dict[str, Any]
"""JSON schemas by their names in a document."""

REFERENCE = "#/components/schemas/{name}"
SHOWN = 3
"""Wrong fields that an error names."""


class Kind:
    """A type, and its JSON.

    Args:
        given: A ``msgspec.Struct``, a dataclass, a ``TypedDict``, a plain type such as ``list[float]``, a model of
            pydantic, or a type with these inside.
        where: What it is of, for errors.

    Attributes:
        given: The argument.

    Raises:
        TypeError: It has no JSON schema.
    """

    def __init__(self, given: Any, where: str) -> None:
        self.given = given
        self._where = where
        is_class = isinstance(given, type) and given is not Any and not is_typeddict(given)
        self._class: Any = given if is_class else ()
        try:
            self._decoder = msgspec.json.Decoder(given, dec_hook=_made)
            self.schema({}, result=False)
        except (TypeError, NameError) as e:
            raise TypeError(f"{where} is {given!r}, which is no type of msgspec or pydantic: {e}") from e

    def read(self, text: bytes | memoryview) -> Any:
        """A value.

        Raises:
            BadRequest: The text does not fit; names the field.
        """
        try:
            return self._read(text)
        except ValueError as e:
            raise BadRequest(f"the body does not fit: {e}") from e

    def _read(self, text: bytes | memoryview) -> Any:
        """As :meth:`read`, but raises ``ValueError`` with a text for clients."""
        if _is_pydantic(self.given):
            return _checked(self.given.model_validate_json, bytes(text), " - at `${}`")
        try:
            return self._decoder.decode(text)
        except RecursionError as e:
            raise ValueError(str(e)) from e

    def write(self, value: Any) -> bytes:
        """The text of a value. One of another type is made one of this type first, as if it had been read.

        Raises:
            BadModelResult: It does not fit.
        """
        try:
            text = written(value)
            if self.given is Any or isinstance(value, self._class):
                return text
            return written(self._read(text))
        except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as e:
            raise BadModelResult(f"{self._where}: {type(value).__qualname__} does not fit: {e}") from e

    def schema(self, schemas: Schemas, *, result: bool) -> Any:
        """The JSON schema, which refers to others; those are added to ``schemas``.

        Args:
            schemas: Schemas of the document.
            result: It is that of values that are written.
        """

        def hook(cls: Any) -> Any:
            if not _is_pydantic(cls):
                raise NotImplementedError(cls)
            return _pydantic_schema(cls, schemas, "serialization" if result else "validation")

        (found,), more = msgspec.json.schema_components([self.given], schema_hook=hook, ref_template=REFERENCE)
        for name, each in more.items():
            schemas.setdefault(name, each)
        return found

    def __repr__(self) -> str:
        return getattr(self.given, "__name__", None) or repr(self.given)


def written(value: Any) -> bytes:
    """A value as JSON. Arrays are lists; NaN and infinities, which JSON lacks, are null."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__module__}.{type(value).__qualname__} has no JSON")


def _made(cls: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know, inside of one that it does."""
    if not _is_pydantic(cls):
        raise NotImplementedError(cls)
    return _checked(cls.model_validate, value, " in `{}`")


def _is_pydantic(cls: Any) -> bool:
    return isinstance(cls, type) and hasattr(cls, "model_validate_json")


def _checked(validate: Callable[[Any], Any], value: Any, where: str) -> Any:
    """What a model of pydantic makes of a value; raises ``ValueError`` with the fields that are wrong."""
    try:
        return validate(value)
    except ValueError as e:
        errors: Any = getattr(e, "errors", None)
        if errors is None:
            raise
        found = errors(include_url=False, include_context=False, include_input=False)
        shown = [f"{each['msg']}{where.format(_path(each['loc'])) if each['loc'] else ''}" for each in found[:SHOWN]]
        more = [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise ValueError("; ".join([*shown, *more])) from None


def _path(steps: tuple[int | str, ...]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in steps)


def _pydantic_schema(cls: Any, schemas: Schemas, mode: str) -> Any:
    """A reference to the schema of a model; those inside of it are named after it."""
    name = cls.__name__ if mode == "validation" else f"{cls.__name__}.Result"
    inner = REFERENCE.replace("{name}", f"{name}.{{model}}")
    found: dict[str, Any] = cls.model_json_schema(ref_template=inner, mode=mode)
    for each, schema in found.pop("$defs", {}).items():
        schemas[f"{name}.{each}"] = schema
    schemas[name] = found
    return {"$ref": REFERENCE.format(name=name)}
