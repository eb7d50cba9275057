"""What is made on first use, where several threads use it first."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.together import together

from callboard.core.op import OPS
from callboard.events import exports
from callboard.events.exports import load
from callboard.events.once import once
from callboard.kernel import methods
from callboard.kernel.fft import many

BOUND = 30.0


@pytest.mark.parametrize("module, alone", [("callboard.xp", True), ("image.api", False)])
def test_modules_of_callboard_are_loaded_by_one_thread_at_a_time(
    monkeypatch: pytest.MonkeyPatch, module: str, alone: bool
) -> None:
    def other() -> bool:
        """Whether another thread may load one now."""
        free = exports._loading.acquire(blocking=False)
        if free:
            exports._loading.release()
        return free

    found: list[bool] = []
    stub = SimpleNamespace(import_module=lambda name: found.extend(together(other, [()])))
    monkeypatch.setattr(exports, "importlib", stub)
    load(module)
    assert found == [not alone]


class Made:
    """Two threads are within ``value`` at the same time."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)

    @once
    def value(self) -> object:
        """A new one each time."""
        self.both.wait(BOUND)
        return object()


def test_threads_get_the_same_value() -> None:
    made = Made()
    one, other = together(lambda: made.value, [(), ()])
    assert one is other is made.value
    assert Made.value.__doc__ == "A new one each time."


def test_messages_of_other_libraries_may_come_while_a_librarys_methods_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Arriving:
        """An op after which another thread's import adds one."""

        def __getattribute__(self, name: str) -> Any:
            ops["late.op"] = object()
            return "nowhere" if name == "__module__" else object.__getattribute__(self, name)

    ops: dict[str, Any] = {"first.op": Arriving(), **OPS}
    monkeypatch.setattr(methods, "OPS", ops)
    api = methods.library_api("callboard.kernel.fft.api", many.__name__.rpartition(".")[2])
    assert api.__name__ == "FftApi"
