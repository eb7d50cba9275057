"""Classes by name, as exchanged by the application and a context host.

A class of an importable module is sent as ``module:qualname``. A class of ``__main__``, a notebook or a function body
is sent by an id, with its code (:mod:`.code`). The ids are cloudpickle's own, which keeps
one class per id however often its code arrives: so an argument of such a class is an instance of the very class that
the actor's code names.

A host trusts the application (:func:`class_named`). The application does not trust a host, which runs users' native
code: it looks only among the classes that it has already (:func:`known_class`).
"""

import importlib
import sys
import threading
import types
import weakref
from typing import Any

from cloudpickle import cloudpickle

from callboard.device.protocol.residents.importing import MAIN, opened_on_import

__all__ = ["by_reference", "class_named", "identity", "known_class", "name_of", "with_id"]

_codes: "weakref.WeakKeyDictionary[type, bytes]" = weakref.WeakKeyDictionary()
_loading = threading.Lock()

_MADE_IN_HOST = "the class was made in the context host itself; define it where both can import it"


def by_reference(cls: type) -> bool:
    """True if a context host can, and may, import the class by its module and name."""
    module = cls.__module__
    if module in MAIN or module in cloudpickle.list_registry_pickle_by_value():
        return False
    if opened_on_import(module):
        return False
    return _looked_up(module, cls.__qualname__) is cls


def identity(cls: type) -> str:
    """The id of a class that is sent by value."""
    known: str = cloudpickle._get_or_create_tracker_id(cls)
    return known


def with_id(id: str) -> type | None:
    """The class of this id in this process, None when its code has not arrived."""
    cls: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(id)
    return cls


def name_of(cls: type, with_code: bool) -> str | list[Any]:
    """The representation of the class in a message: ``"module:qualname"``, or ``[id, code]``.

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
        from callboard.device.protocol.residents.code import dumps

        code = _codes[cls] = dumps(cls)
    return [identity(cls), code]


def class_named(name: str | list[Any]) -> type:
    """The class that a name refers to. For a host: imports modules and loads code that the application names.

    Raises:
        ImportError: Its module cannot be imported here, or has no such class.
    """
    if isinstance(name, str):
        module, _, qualname = name.partition(":")
        found = _looked_up(module, qualname)
        if found is None:  # an import waits for an import of another thread, even if the class already exists
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
                raise ImportError(_MADE_IN_HOST)
            from callboard.device.protocol.residents.code import loads

            cls = loads(code)
            assert isinstance(cls, type)
    return cls


def known_class(name: Any) -> type:
    """The class that a host's message names, among those of this process. Imports nothing and runs no code.

    Raises:
        TypeError: The message is malformed, or brings code.
        ImportError: This process does not have the class.
    """
    if type(name) is str:
        module, _, qualname = name.partition(":")
        found = _defined(module, qualname)
        if found is None:
            raise ImportError(f"class {name} is not loaded in the application; import {module} before the call")
        return found
    if type(name) is not list or len(name) != 2 or type(name[0]) is not str:
        raise TypeError(f"{name!r:.200} does not name a class")
    if name[1] != b"":
        raise TypeError(f"class {name[0]!r:.200} was sent with code; a context host sends no code")
    cls = with_id(name[0])
    if cls is None:
        raise ImportError(_MADE_IN_HOST)
    return cls


def _defined(module: str, qualname: str) -> type | None:
    """The class of this name in a module that is loaded, without the ``__getattr__`` of lazy modules and classes."""
    owner = sys.modules.get(module)
    if not issubclass(type(owner), types.ModuleType):
        return None
    found: Any = None
    namespace = object.__getattribute__(owner, "__dict__")
    for part in qualname.split("."):
        found = namespace.get(part)
        if not issubclass(type(found), type):
            return None
        namespace = type.__getattribute__(found, "__dict__")
    cls: type = found
    return cls


def _looked_up(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
