"""``Carried``: a user's strategy on its way into the settings of a context host."""

from typing import Any

import msgspec

from callboard.actors.errors import printable
from callboard.core.errors import Unrecoverable
from callboard.device.hooks import check_hook
from callboard.device.strategies.completion import CompletionStrategy
from callboard.device.strategies.streams import StreamAllocator

__all__ = ["Carried", "carried", "unpacked"]

KINDS: dict[str, type[Any]] = {"completion": CompletionStrategy, "streams": StreamAllocator}

MAX_CODE = 1 << 20
"""Bytes of a strategy; each context that is opened gets a copy."""


class Carried(msgspec.Struct, frozen=True):
    """A strategy as it is sent.

    Attributes:
        name: Name of its class.
        code: Its pickle.
    """

    name: str
    code: bytes

    def __repr__(self) -> str:
        return f"<{self.name}>"


def carried(setting: str, value: Any) -> Any:
    """The value of the setting ``streams`` or ``completion`` as it is sent; words and None as they are.

    Raises:
        TypeError: It is not a strategy, or does not pickle.
        ValueError: It is too large.
    """
    if value is None or isinstance(value, str | Carried):
        return value
    kind = KINDS[setting]
    name = type(value).__qualname__
    if isinstance(value, type):
        raise TypeError(f"{setting} is the class {value.__qualname__}; pass an object: {value.__qualname__}(...)")
    if not isinstance(value, kind):
        raise TypeError(
            f"{setting} is {value!r:.200}; pass a name, or an object of a class that derives from cb.{kind.__name__}"
        )
    for method, ours in vars(kind).items():
        if callable(ours) and not method.startswith("_"):
            check_hook(f"{setting}: {name}", value, kind, method)
    from callboard.device.protocol.residents.code import dumps

    try:
        code = dumps(value)
    except Exception as e:  # whatever a user's __reduce__ raises
        raise TypeError(
            f"{setting}: {name} cannot be sent to the context host: {type(e).__name__}: {printable(e)}; each context "
            "has a copy, made by pickle: make streams, threads and locks when it is called there"
        ) from e
    if len(code) > MAX_CODE:
        raise ValueError(f"{setting}: {name} is {len(code):,} bytes as a pickle; at most {MAX_CODE:,} are sent")
    return Carried(name, code)


def unpacked(setting: str, given: Carried) -> Any:
    """A copy of the strategy, for one context.

    Raises:
        Unrecoverable: It cannot be made in this process.
    """
    from callboard.device.protocol.residents.code import loads

    try:
        value = loads(given.code)
        if not isinstance(value, KINDS[setting]):
            raise TypeError(f"its pickle gives {value!r:.200}")
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # from a user's class: the next context could not make it either
        raise Unrecoverable(
            f"{setting}: {given.name} cannot be made in the context host: {type(e).__name__}: {printable(e)}; its "
            "module must be importable there"
        ) from e
    return value
