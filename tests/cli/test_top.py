"""``callboard top``: the view as text, its keys, and the command."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.cli import main
from callboard.cli.top.tables import TABLES, bytes_text
from callboard.cli.top.view import HELP, View
from callboard.telemetry.sampling.snapshot import Snapshot

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Unix sockets")


def snapshot(**changes: Any) -> Snapshot:
    device = {
        "name": "cpu:0",
        "backend": "cpu",
        "isolation": "thread",
        "uuid": "CPU-0",
        "state": "ready",
        "generation": 2,
        "losses": 1,
        "standby": "hot",
        "standbys_ready": 1,
        "host_pid": 7,
        "queued": 3,
        "in_flight": {"blas": 4},
        "completed": 100,
        "out_of_memory": 0,
        "failed": 2,
        "memory": {"used": 2048.0},
        "ops": {
            tag: {"submitted": n, "measured": 1, "seconds": 1e-3} for tag, n in (("blas.gemm", 9), ("fft.rfft", 5))
        },
        "residents": {},
    }
    ring = {"capacity": 8, "waiting": 0, "drained": 0, "dropped": 6}
    whole = {
        "at": 100.0,
        "node": "here",
        "system": "shop",
        "pid": 7,
        "actors": [],
        "devices": [device],
        "blueprints": [],
        "processes": [],
        "ring": ring,
        "dead_letters": {"stopped": 2},
        "extra": {},
    }
    return msgspec.convert({**whole, **changes}, Snapshot)


def test_a_screen() -> None:
    before, now = snapshot(), snapshot(at=102.0)
    now.devices[0].completed = 300
    lines = View().lines(now, before, 120, 12)
    assert len(lines) == 12
    assert lines[0] == (
        "shop on here, process 7: 1 devices (1 losses), 0 actors, 0 servers, 2 dead letters, 6 events dropped"
    )
    assert lines[3].split()[:4] == ["device", "state", "gen", "losses"]
    assert lines[4].split()[:11] == [">", "cpu:0", "ready", "2", "1", "1", "hot", "3", "4", "100", "2"]
    assert "2K" in lines[4]
    assert lines[-1] == HELP[:120]
    assert all(len(line) <= 20 for line in View().lines(now, before, 20, 12))


def test_keys() -> None:
    now = snapshot()
    view = View()
    view.key("2")
    assert [row.key for row in view.rows(now, None)] == ["cpu:0 blas.gemm", "cpu:0 fft.rfft"]
    for _ in range(3):
        view.key("s")  # by device, by op, by calls
    assert [row.values[2] for row in view.rows(now, None)] == [9, 5]
    view.key("r")
    assert [row.values[2] for row in view.rows(now, None)] == [5, 9]
    view.key("down")
    assert "> cpu:0" in view.lines(now, None, 100, 12)[5]
    view.key("tab")
    assert (view.table, view.lines(now, None, 100, 12)[4]) == (2, "  no servers")
    view.key("1")
    view.key("enter")
    assert '    "isolation": "thread",' in view.lines(now, None, 100, 60)
    view.key("escape")
    view.key("q")
    assert view.done
    assert not view.details


def test_unknown_figures_sort_and_show() -> None:
    assert [bytes_text(value) for value in (None, 12.0, 3 << 20, 5 << 40)] == ["-", "12", "3.0M", "5.0T"]
    view, now = View(), snapshot()
    for column in range(len(TABLES[0].columns)):
        view.sort[0] = column
        assert len(view.rows(now, None)) == 1


async def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["top", "--once"]) == 2
    assert "no application of this user is observed; call cb.observe(system)" in capsys.readouterr().err
    assert main(["top", "--json"]) == 2
    assert main(["top", "--interval", "0"]) == 2
    async with cb.System("shop") as system:
        cb.observe(system)
        device = await system.device("cpu", isolation="thread")
        await (device.put(np.ones(3)) + 1).get()
        capsys.readouterr()
        assert await asyncio.to_thread(main, ["top", "--once"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("shop on ")
        assert {"devices", "ops", "processes"} <= set(text.splitlines())
        assert await asyncio.to_thread(main, ["top", str(os.getpid()), "--once", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["devices"][0]["name"] == "cpu:0"
        assert await asyncio.to_thread(main, ["top"]) == 2
        assert "this is no terminal" in capsys.readouterr().err


def test_a_narrow_terminal_shows_the_other_columns_by_the_arrows_and_texts_move_no_cursor() -> None:
    view = View()
    wide = view.lines(snapshot(system="a\x1b[2J\nb"), None, 200, 12)
    assert wide[0].startswith("a\ufffd[2J\ufffdb on here")
    assert all(line.isprintable() for line in wide)
    for _ in range(3):
        view.key("right")
    narrow = view.lines(snapshot(), None, 30, 12)
    assert narrow[3].split() == ["device", "standbys", "queued", "in"]
    for _ in range(50):
        view.key("right")
    assert view.lines(snapshot(), None, 30, 12)[3].split() == ["device", "last", "loss"]
    view.key("left")
    assert "free" in view.lines(snapshot(), None, 30, 12)[3]
    assert all(len(line) <= 30 for line in narrow)


def test_ops_that_were_not_measured_have_no_time() -> None:
    ops = {tag: {"submitted": 9, "measured": n, "seconds": 0.0} for n, tag in enumerate(("a.b", "a.c"))}
    device = msgspec.to_builtins(snapshot().devices[0]) | {"ops": ops}
    for reverse in (False, True):
        view = View(table=1, sort={1: 5}, reverse={1: reverse})
        lines = view.lines(snapshot(devices=[device]), None, 100, 12)
        assert lines[5].split()[-2:] == ["-", "-"]
