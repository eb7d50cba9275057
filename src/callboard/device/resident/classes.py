"""Classes by name: how the application and a context host say which class they mean.

A class of an importable module goes by ``module:qualname``. One of ``__main__``, a notebook or a function body goes by
an id, and its code travels with it (:mod:`callboard.device.resident.code`). The ids are cloudpickle's own, which keeps
one class per id however often its code arrives: so an argument of such a class is an instance of the very class that
the actor's code names.
"""

import importlib
import sys
import threading
import weakref
from typing import Any

from cloudpickle import cloudpickle

__all__ = ["by_reference", "class_named", "identity", "name_of", "with_id"]

_codes: "weakref.WeakKeyDictionary[type, bytes]" = weakref.WeakKeyDictionary()
_loading = threading.Lock()


def by_reference(cls: type) -> bool:
    """Whether another process can import the class by its module and name."""
    module = cls.__module__
    if module in ("__main__", "__mp_main__") or module in cloudpickle.list_registry_pickle_by_value():
        return False
    return _looked_up(module, cls.__qualname__) is cls


def identity(cls: type) -> str:
    """The id of a class that goes by value."""
    known: str = cloudpickle._get_or_create_tracker_id(cls)
    return known


def with_id(id: str) -> type | None:
    """The class of this id in this process, None when its code has not arrived."""
    cls: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(id)
    return cls


def name_of(cls: type, with_code: bool) -> str | list[Any]:
    """What stands for the class in a message: ``"module:qualname"``, or ``[id, code]``.

    Args:
        cls: The class.
        with_code: The other end may not have it yet. The application sends code, a context host never does.
    """
    if by_reference(cls):
        return f"{cls.__module__}:{cls.__qualname__}"
    if not with_code:
        return [identity(cls), b""]
    code = _codes.get(cls)
    if code is None:
        from callboard.device.resident.code import dumps

        code = _codes[cls] = dumps(cls)
    return [identity(cls), code]


def class_named(name: str | list[Any]) -> type:
    """The class that a name stands for.

    Raises:
        ImportError: Its module cannot be imported here, or has no such class.
    """
    if isinstance(name, str):
        module, _, qualname = name.partition(":")
        importlib.import_module(module)
        found = _looked_up(module, qualname)
        if not isinstance(found, type):
            raise ImportError(f"{module} has no class {qualname}")
        return found
    class_id, code = name
    with _loading:
        cls = with_id(class_id)
        if cls is None:
            if not code:
                raise ImportError("the class was made in the context host itself; define it where both can import it")
            from callboard.device.resident.code import loads

            cls = loads(code)
            assert isinstance(cls, type)
    return cls


def _looked_up(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
