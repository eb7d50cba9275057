"""SciPy's extensions are loaded once, however many threads ask for them first."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.backends.cpu.blas import routines

BOUND = 30.0


def test_two_threads_load_an_extension_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "scipy.linalg.cython_of_a_test"
    loaded: list[Any] = []
    begun, go = threading.Event(), threading.Event()

    def execute(module: Any) -> None:
        loaded.append(module)
        begun.set()
        assert go.wait(BOUND)
        module.__pyx_capi__ = {"gemm": 1}
        monkeypatch.setitem(sys.modules, name, module)

    spec = SimpleNamespace(loader=SimpleNamespace(exec_module=execute))
    monkeypatch.setattr(routines, "PathFinder", SimpleNamespace(find_spec=lambda *_: spec))
    monkeypatch.setattr("importlib.util.module_from_spec", lambda _: SimpleNamespace())
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(routines._published("of_a_test")), daemon=True) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(BOUND)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(BOUND)
    assert found == [{"gemm": 1}] * 2
    assert len(loaded) == 1
