"""Device arrays of others and our arrays in others' hands.

Under process isolation a device address means nothing in the application: every way across names the way out instead.
"""

from typing import Any, NoReturn

from callboard.core.ref import GpuRef

__all__ = ["refuse"]


def refuse(ref: GpuRef, what: str, kind: type[Exception]) -> NoReturn:
    """The device's memory lives in another process.

    Raises:
        BufferError, TypeError: As ``kind`` says.
    """
    raise kind(
        f"{what} of {ref.layout!r} on {ref.device}: the array lives in the context host's process. Copy it with `await ref.get()`, "
        "work on it in a ResidentActor, or open the device with isolation='thread'"
    )


def refuse_foreign(array: Any) -> NoReturn:
    """A device array of this process cannot be handed to a device in another.

    Raises:
        TypeError
    """
    raise TypeError(
        f"{type(array).__module__}.{type(array).__qualname__} lies on a device of this process and the context lives in another: "
        "copy it to the host first, make it in a ResidentActor, or open the device with isolation='thread'"
    )
