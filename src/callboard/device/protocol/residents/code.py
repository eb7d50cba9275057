"""Code that travels: the class of a resident actor, with its constructor's arguments, to our own children.

This is the only pickle in callboard. Classes of importable modules are sent by reference, those of ``__main__`` and
notebooks by value. cloudpickle alone empties :class:`msgspec.Struct` classes (their fields live in C, not in the
class's dictionary), so these have a reducer here: the class statement is executed again.
"""

import importlib
import inspect
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import cloudpickle
import msgspec
from cloudpickle import cloudpickle as tracking

from callboard.actors.messages import MessageMeta
from callboard.device.protocol.residents.classes import by_reference, identity, with_id
from callboard.device.protocol.residents.importing import MAIN, note_importing, opened_on_import

__all__ = ["dumps", "loads"]

_CONFIG = ("frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields")
_ONCE = ("weakref", "dict", "cache_hash")  # options that a subclass must not repeat
_MADE = frozenset({"__dict__", "__weakref__", "__slots__", "__match_args__", "__callboard_table__", "__rich_repr__"})
"""Attributes that the class statement makes by itself."""

_pending_init: dict[type, list[Callable[[Any], None]]] = {}


def dumps(value: Any) -> bytes:
    """Pickle a class, or a recipe of classes, functions and arguments.

    Raises:
        TypeError, pickle.PicklingError: Something in it cannot be pickled.
    """
    note_importing()
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def loads(code: bytes) -> Any:
    """The object given to :func:`dumps`; only for bytes from the application."""
    return pickle.loads(code)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, msgspec.Struct) and not by_reference(obj):
            return _reduce(obj)
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj:
            return importlib.import_module, (obj.__name__,)  # also of the classes of modules that packages make up
        if isinstance(obj, type | types.FunctionType | TypeVar) and _only_here(obj.__module__ or ""):
            if isinstance(obj, type):
                return tracking._dynamic_class_reduce(obj)
            if isinstance(obj, types.FunctionType):
                return self._dynamic_function_reduce(obj)
            return tracking._make_typevar, tracking._decompose_typevar(obj)
        return super().reducer_override(obj)


def _only_here(module: str) -> bool:
    """True if no other process can, or may, import the module."""
    return module in MAIN or opened_on_import(module)


def _reduce(cls: type[msgspec.Struct]) -> tuple[Any, ...]:
    """In two steps, so that methods and annotations may refer to the class itself: first bare, the rest as state."""
    own = [f for f in msgspec.structs.fields(cls) if f.name in inspect.get_annotations(cls)]
    fields: dict[str, dict[str, Any]] = {}
    for f in own:
        options: dict[str, Any] = {}
        if f.default is not msgspec.NODEFAULT:
            options["default"] = f.default
        if f.default_factory is not msgspec.NODEFAULT:
            options["default_factory"] = f.default_factory
        if f.encode_name != f.name:
            options["name"] = f.encode_name
        fields[f.name] = options
    bare = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    if Generic in cls.__bases__:
        bare["__orig_bases__"] = vars(cls)["__orig_bases__"]  # typing reads them in the class statement
    state = {name: value for name, value in vars(cls).items() if _is_state(name, value, fields, bare)}
    made = (type(cls), identity(cls), cls.__name__, cls.__bases__, bare, fields, _options(cls, fields))
    return _remake, (*made, "__post_init__" in vars(cls)), state, None, None, _complete


def _options(cls: type[msgspec.Struct], fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    config = cls.__struct_config__
    options: dict[str, Any] = {}
    if config.tag is not None:
        options["tag"] = config.tag
    if isinstance(cls, MessageMeta):
        return options  # it sets the others
    if config.tag is not None:
        options["tag_field"] = config.tag_field
    options |= {name: getattr(config, name) for name in _CONFIG}
    inherited = [base.__struct_config__ for base in cls.__bases__ if hasattr(base, "__struct_config__")]
    for name in _ONCE:
        if getattr(config, name, False) and not any(getattr(base, name, False) for base in inherited):
            options[name] = True
    if any(name not in cls.__match_args__ for name in fields):
        options["kw_only"] = True
    return options


def _is_state(name: str, value: Any, fields: dict[str, Any], bare: dict[str, Any]) -> bool:
    if name in fields or name in bare or name in _MADE or name.startswith(("__struct_", "__msgspec_")):
        return False
    return not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def _remake(
    meta: type,
    id: str,
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
    fields: dict[str, dict[str, Any]],
    options: dict[str, Any],
    has_post_init: bool,
) -> type:
    """The bare class: fields and their defaults, without methods."""
    known = with_id(id)
    if known is not None:
        return known
    body: dict[str, Any] = {**namespace, "__annotations__": dict.fromkeys(fields, Any)}
    body |= {field: msgspec.field(**given) for field, given in fields.items() if given}
    late: list[Callable[[Any], None]] = []
    if has_post_init:  # msgspec reads it now; its code may refer to the class, so it is set later

        def post_init(self: Any) -> None:
            late[0](self)

        body["__post_init__"] = post_init
    cls: type = meta(name, bases, body, **options)
    tracked: type = tracking._lookup_class_or_track(id, cls)
    _pending_init[tracked] = late
    return tracked


def _complete(cls: type, state: dict[str, Any]) -> None:
    """The rest of the class; nothing if the class was here before."""
    late = _pending_init.pop(cls, None)
    if late is None:
        return
    for name, value in state.items():
        if name == "__post_init__":
            late.append(value)
        else:
            setattr(cls, name, value)
