"""Notebook display of a ref: values only if the device was opened to show them, and nothing is computed."""

import threading

import numpy as np

import callboard as cb
from callboard.core.ref import DeferredRef


def test_a_notebook_computes_nothing(session: cb.sync.Device) -> None:
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
    assert "pending" in later._repr_html_()
    assert isinstance(later, DeferredRef)
    del later
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
        assert "<pre>" not in deferred._repr_html_()
        assert "<pre>[3. 5.]</pre>" in deferred.result()._repr_html_()
        scalar = device.xp.sum(small).result()
        assert "<pre>4.</pre>" in scalar._repr_html_()


async def test_refs_that_are_awaited_show_no_values() -> None:
    async with cb.device("cpu", isolation="thread", preview=9) as device:
        shown = (await device.put(np.ones(3)))._repr_html_()
        assert "f64[3]" in shown
        assert "<pre>" not in shown
