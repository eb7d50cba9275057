"""File descriptors: the limit bounds the connections, and a shortage is logged and counted."""

import errno
import logging
import os

import pytest
from serve_lab import client_of, small_app, until

from callboard.serve import listening
from callboard.serve.http import bounded
from callboard.serve.http.bounded import Descriptors


@pytest.mark.parametrize("limit, asked, most", [(64, 1024, 32), (1024, 1024, 960), (4096, 1024, 1024)])
def test_the_limit_bounds_the_connections(
    limit: int, asked: int, most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(bounded, "_limits", lambda: (limit, limit))
    assert Descriptors(small_app().figures, 0).bounded(asked) == most
    told = f"max_connections is {most} in place of {asked}: the process may have {limit} file descriptors (ulimit -n)"
    assert [each.getMessage() for each in caplog.records] == ([told] if most < asked else [])


async def test_a_shortage_is_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    app = small_app()
    async with listening(app, port=0):
        monkeypatch.setattr(os, "dup", none_left)
        await until(lambda: app.figures.shortages >= 2)
        monkeypatch.undo()
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "no file descriptor is left (Too many open files)" in record.getMessage()
    other = small_app()
    other.figures.shortages = 3
    async with client_of(other) as http:
        assert "callboard_http_descriptor_shortages_total 3\n" in (await http.get("/metrics")).text
