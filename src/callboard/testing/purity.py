"""Calls that a launch must not make: allocate or release memory, make a stream, wait for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from callboard.core.backend import AccelDevice, AccelStream

__all__ = ["enqueue_only"]

OF_DEVICE = ("allocate", "release", "stream", "trim", "register_host", "unregister_host", "probe")
OF_STREAM = ("synchronize", "close")


@contextmanager
def enqueue_only(device: AccelDevice, stream: AccelStream) -> Iterator[None]:
    """While this is open, device and stream reject calls that belong into a prepare.

    Calls that a library makes directly to its vendor are not detected here; recording the launch in a graph detects
    them.

    Raises:
        AssertionError: From the call that is refused.
    """
    before = []
    for what, names in ((device, OF_DEVICE), (stream, OF_STREAM)):
        own = vars(what)
        before += [(own, name, own.get(name)) for name in names]  # a test may have put its own there
        own.update({name: _refusing(f"{type(what).__name__}.{name}") for name in names})
    try:
        yield
    finally:
        for own, name, method in before:
            if method is None:
                del own[name]
            else:
                own[name] = method


def _refusing(name: str) -> Any:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError(f"{name} in a launch, which only enqueues; do it in the prepare")

    return refuse
