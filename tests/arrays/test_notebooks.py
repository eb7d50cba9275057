"""Display of a ref: of a small one, values, which IPython and notebooks compute; ``repr`` computes nothing."""

import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard import _blocking_device
from callboard.core.ref import DeferredRef, html
from callboard.core.reply import Reply


def test_a_notebook_computes_no_large_array_and_repr_none(session: cb.sync.Device) -> None:
    x = session.array(np.arange(6.0)).result()
    session.drain()
    shown = x._repr_html_()
    session.drain()
    before = session.stats().completed
    assert "f64[6]" in shown
    assert session.name in shown
    assert "ready" in shown
    assert "48" in shown
    assert "<pre>[0. 1. 2. 3. 4. 5.]</pre>" in shown
    later = x + 1.0
    assert "pending" in repr(later)
    assert isinstance(later, DeferredRef)
    large = session.xp.broadcast_to(x, (1000, 6)) + 1.0
    assert "pending" in large._repr_html_()
    assert "pending" in pretty(large)
    assert isinstance(large, DeferredRef)
    del later, large
    session.drain()
    assert session.stats().completed == before
    held, go = threading.Event(), threading.Event()
    session._background.loop.call_soon_threadsafe(lambda: (held.set(), go.wait(30)))
    assert held.wait(30)
    try:  # no completion is noticed meanwhile
        found = session.xp.nonzero(x)[0]
        assert "&lt;=6" in found._repr_html_(), "its extent depends on data, and is not asked for"
    finally:
        go.set()
    x.free()
    assert "stale: freed" in x._repr_html_()
    session.drain()  # the search starts the context's second thread, which the next test would find new


def test_a_preview_shows_the_first_values_of_what_is_computed() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", preview=9) as device:
        small = device.array(np.array([1.5, 2.5])).result()
        assert "<pre>[1.5 2.5]</pre>" in small._repr_html_()
        large = device.array(np.arange(10_000).reshape(100, 100)).result()
        assert "[200 201 202]]\n… of which these are the first</pre>" in large._repr_html_()
        deferred = small * 2.0
        assert "pending" in repr(deferred)
        assert "<pre>[3. 5.]</pre>" in deferred._repr_html_()
        assert pretty(small * 3.0) == f"array([4.5, 7.5], device={device.name!r})"
        assert pretty(device.array(np.eye(2)) * 1.0) == f"array([[1., 0.],\n       [0., 1.]], device={device.name!r})"
        assert "pending" in pretty(large * 2)
        scalar = device.xp.sum(small).result()
        assert "<pre>4.</pre>" in scalar._repr_html_()


def test_a_display_of_many_arrays_that_are_not_ready_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocking_device, "LATE", 600.0)
    monkeypatch.setattr(html, "WAIT", 0.01)
    waited: list[float | None] = []
    result = Reply.result

    def counted(self: Any, timeout: float | None = None) -> Any:
        waited.append(timeout)
        return result(self, timeout)

    with cb.sync.System() as system, system.device("cpu", isolation="thread") as device:
        x = device.array(np.ones(3)).result()
        held, go = threading.Event(), threading.Event()
        device._background.loop.call_soon_threadsafe(lambda: (held.set(), go.wait(30)))
        assert held.wait(30)
        monkeypatch.setattr(Reply, "result", counted)
        try:  # no completion is noticed meanwhile
            shown = [pretty(ref) for ref in (x + 1.0, x + 2.0, x + 3.0)]
        finally:
            go.set()
        assert all("pending" in text for text in shown)
        assert waited == [0.01, 0.0, 0.0]


def test_a_display_of_a_failed_array_shows_its_error() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", memory_limit=1 << 20) as device:
        lost = (device.np.ones((1 << 20,)) * 2).sum()
        for text in (lost._repr_html_(), pretty(lost)):
            assert "failed" in text
            assert "OutOfMemory: 8,388,608 bytes requested" in text


async def test_refs_that_are_awaited_show_no_values() -> None:
    async with cb.device("cpu", isolation="thread", preview=9) as device:
        shown = (await device.put(np.ones(3)))._repr_html_()
        assert "f64[3]" in shown
        assert "<pre>" not in shown
        assert "GpuRef f64[3]" in pretty(await device.put(np.ones(3)))


class Printer:
    """The part of IPython's printer that a ref uses."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, text: str) -> None:
        assert "\n" not in text
        self.parts.append(text)

    def break_(self) -> None:
        self.parts.append("\n")


def pretty(ref: Any) -> str:
    printer = Printer()
    ref._repr_pretty_(printer, False)
    return "".join(printer.parts)
