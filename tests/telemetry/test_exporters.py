"""Exporters: how they are named, what they refuse, and what a profile and a traced program tell."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.telemetry.packets import Trace

import callboard as cb
from callboard.events.ring import EVENTS
from callboard.telemetry import installed
from callboard.telemetry.export.prometheus import Text
from callboard.telemetry.export.scrape import CLIENTS, Scrape, address_of
from callboard.telemetry.families import Family
from callboard.telemetry.profiling.costs import Costs

LIMIT = 60.0
SOURCE = Path(__file__).parents[2] / "src"


async def answer(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        found = await reader.read()
        writer.close()
    return found


# -- Prometheus --------------------------------------------------------------------------------------------------------


def test_labels_are_quoted_and_groups_of_a_family_are_together() -> None:
    one = Family("callboard_a", "gauge", "", ("x",), "A \\ and\na line.")
    two = Family("callboard_b", "gauge", "", (), "Other.")
    groups: list[Any] = [(one, [(('"\\\n',), 1)]), (two, []), (two, [((), 2.5)]), (one, [(("y",), 3)])]
    assert Text().render(groups) == (
        "# HELP callboard_a A \\\\ and\\na line.\n# TYPE callboard_a gauge\n"
        'callboard_a{x="\\"\\\\\\n"} 1\ncallboard_a{x="y"} 3\n'
        "# HELP callboard_b Other.\n# TYPE callboard_b gauge\ncallboard_b 2.5\n"
    )


@pytest.mark.parametrize(
    "where, address",
    [
        (9464, ("127.0.0.1", 9464)),
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:2", ("::1", 2)),
    ],
)
def test_addresses(where: int | str, address: tuple[str, int]) -> None:
    assert address_of(where) == address


@pytest.mark.parametrize("where", ["", "host", "host:", "1:99999", -1, "a:b"])
def test_what_is_no_address_is_named(where: int | str) -> None:
    with pytest.raises(ValueError, match=r"prometheus = .* is no port"):
        address_of(where)


async def test_the_port_answers_metrics_only_and_one_that_is_taken_is_refused() -> None:
    async with cb.System("app") as system:
        telemetry = cb.observe(system)
        scrape = Scrape(telemetry, 0)
        assert (await answer(scrape.port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        head = await answer(scrape.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert (await answer(scrape.port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert (await answer(scrape.port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert await answer(scrape.port, b"x" * 20_000) == b""
        with pytest.raises(OSError, match="in use"):
            cb.observe(system, prometheus=scrape.port)
    with pytest.raises(OSError, match=r"refused|Connect"):
        await answer(scrape.port, b"")


async def test_connections_that_say_nothing_do_not_keep_a_scraper_out() -> None:
    async with cb.System("app") as system:
        scrape = Scrape(cb.observe(system), 0)
        silent = [await asyncio.open_connection("127.0.0.1", scrape.port) for _ in range(CLIENTS + 3)]
        assert (await answer(scrape.port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await silent[0][0].read() == b""
        for _, writer in silent:
            writer.close()


async def test_figures_with_any_keys_and_figures_that_fail_do_not_cost_the_others_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def double(item: int) -> int:
        return 2 * item

    class Broken(cb.FairShareScheduler[int, int]):
        def stats(self) -> cb.FairShareStats:
            raise ZeroDivisionError

    async with (
        cb.System("app") as system,
        cb.FairShareScheduler[int, int](double, name="fair", tenants={("acme", 7): 2}) as fair,
        Broken(double, name="broken"),
    ):
        telemetry = cb.observe(system)
        assert await fair.submit(1, tenant=("acme", 7)) == 2
        with caplog.at_level(logging.ERROR, "callboard.telemetry"):
            served = {each.name: each for each in telemetry.sample().blueprints}
            text = Text().render(telemetry.collect())
    assert list(served["fair"].figures["tenants"]) == ["acme/7"]
    assert "broken" not in served
    assert 'callboard_server_requests_total{server="fair"' in text
    assert "broken: stats() failed" in caplog.text


async def test_metrics_that_cannot_be_collected_are_an_answer() -> None:
    async with cb.System("app") as system:
        telemetry = cb.observe(system)
        scrape = Scrape(telemetry, 0)
        telemetry.collect = lambda: 1 // 0  # type: ignore[assignment,return-value]
        assert (await answer(scrape.port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")


# -- how it is turned on -----------------------------------------------------------------------------------------------


async def test_an_unknown_exporter_and_a_system_that_is_not_started_are_refused() -> None:
    async with cb.System("app") as system:
        with pytest.raises(TypeError, match="no exporter 'graphite'; there are prometheus, jsonl"):
            cb.observe(system, graphite="x")
        assert installed() == []
        telemetry = cb.observe(system)
        assert cb.observe(system) is telemetry
        assert installed() == [telemetry]
        await telemetry.close()
        assert EVENTS.ring is None
        assert cb.observe(system) is not telemetry
    assert installed() == []
    with pytest.raises(RuntimeError, match="is not started"):
        cb.observe(cb.System("later"))


async def test_the_environment_turns_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("CALLBOARD_TELEMETRY", f"jsonl:{path}, perfetto:{tmp_path}/no/folder")
    with caplog.at_level(logging.ERROR, "callboard.telemetry"):
        for _ in range(2):  # the systems of a process share the file
            async with cb.System("app"):
                assert len(installed()) == 1
    assert "no/folder cannot be used" in caplog.text
    assert path.read_text("utf-8").count('"what":"started"') == 2
    monkeypatch.setenv("CALLBOARD_TELEMETRY", "0")
    async with cb.System("app"):
        assert installed() == []
    monkeypatch.setenv("CALLBOARD_TELEMETRY", "yes")
    with pytest.raises(ValueError, match="CALLBOARD_TELEMETRY: 'yes' is not 1, and not one of prometheus, jsonl"):
        await cb.System("app").start()


# -- profiles ----------------------------------------------------------------------------------------------------------


async def test_a_profile_counts_the_ops_of_its_block(tmp_path: Path) -> None:
    async with cb.device("cpu") as device:
        a = device.put(np.ones((8, 8), np.float32))
        await device.blas.gemm(a, a)
        async with device.profile() as profile:
            for _ in range(30):
                last = device.blas.gemm(a, a)
            device.copy(last)
        device.blas.gemm(a, a)
        assert {cost.op: cost.calls for cost in profile.ops} == {"blas.gemm": 30, "memory.copy": 1}
        assert sum(cost.share for cost in profile.ops) == pytest.approx(1)
        assert "blas.gemm" in str(profile)
        assert repr(profile).startswith(f"<Profile of {device.name}: 31 ops, ")
        assert f"the costliest is {profile.ops[0].op}, " in repr(profile)
        printed: list[str] = []
        profile._repr_pretty_(SimpleNamespace(text=printed.append, break_=lambda: printed.append("\n")), False)
        assert "".join(printed) == str(profile)
        assert "memory.copy" in profile._repr_html_()
        profile.save(tmp_path / "t.pftrace")
        with pytest.raises(RuntimeError, match="make another one"):
            await profile.__aenter__()
        with pytest.raises(TypeError, match="async with"), device.profile():
            pass
    trace = Trace((tmp_path / "t.pftrace").read_bytes())
    assert len([each for each in trace.slices if each.name == "blas.gemm" and each.track == "blas"]) == 30
    assert EVENTS.ring is None


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.few(4)
async def test_a_profile_has_no_ops_from_before_its_block(tmp_path: Path, isolation: Any, measured: bool) -> None:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        if measured:
            cb.observe(system, perfetto=str(tmp_path / "app.pftrace"))
        device = await system.device("cpu", isolation=isolation)
        a = device.put(np.ones((256, 256), np.float32))
        for _ in range(5):
            await device.blas.gemm(a, a)
        b = device.blas.gemm(a, a)  # may run in the block
        async with device.profile() as profile:
            await device.copy(b)
        assert {cost.op: cost.calls for cost in profile.ops} == {"memory.copy": 1}
        profile.save(tmp_path / "t.pftrace")
        tracks = {"blas", "memory"}
        names = {each.name for each in Trace((tmp_path / "t.pftrace").read_bytes()).slices if each.track in tracks}
        assert names == {"memory.copy"}
        async with device.profile() as empty:
            pass
        assert str(empty) == "no ops"
        assert repr(empty) == f"<Profile of {device.name}: no ops>"


def test_a_profile_of_a_blocking_device() -> None:
    with cb.sync.device("cpu") as device:
        a = device.put(np.ones((8, 8), np.float32))
        with device.profile() as profile:
            device.blas.gemm(a, a).get()
    assert {cost.op: cost.calls for cost in profile.ops} == {"blas.gemm": 1, "memory.download": 1}


def test_costs_are_the_time_on_the_stream() -> None:
    costs = Costs()
    costs.add("gpu", [(1, "a", 0, 0.0, 1.0, 9.0, True, 2.0, 3.0), (2, "b", 0, 0.0, 1.0, 9.0, False, 5.0, 1.0)])
    costs.add("gpu", [(3, "b", 1, 0.0, 1.0, 2.0, True, 0.0, 0.0), (4, "b", 1, 0.0, 1.5, 3.0, True, 0.0, 0.0)])
    found = {cost.op: (cost.calls, cost.seconds, cost.longest, cost.failed) for cost in costs.ops}
    assert found == {"a": (1, 3.0, 3.0, 0), "b": (3, 3.0, 1.0, 1)}
    table = costs.table(1).splitlines()
    assert len(table) == 3
    assert "1 others" in table[2]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "no program is given"),
        (["-o", "no/folder/x", "--", "true"], "there is no folder"),
        (["--", "no-such"], "run"),
    ],
)
def test_what_cannot_be_traced_is_said(arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    from callboard.cli import main

    assert main(["trace", *arguments]) in (2, 127)
    assert says in capfd.readouterr().err


# -- a full disk -------------------------------------------------------------------------------------------------------

FULL = """
import asyncio, logging, resource, sys
import callboard as cb
from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, now

logging.basicConfig(level=logging.ERROR, format="%(message)s")


async def main():
    async with cb.System("app") as system:
        telemetry = cb.observe(system, jsonl=sys.argv[1], perfetto=sys.argv[2])
        telemetry.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # as a full disk: a part is written, then an error
        for number in range(1000):
            EVENTS.ring.append((next(EVENTS.ring.numbers), now(), MARK, "test", f"event {number}", {"number": number}))
        telemetry.flush()
        assert telemetry.sample().ring.waiting == 0


asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of processes")
def test_a_full_disk_leaves_whole_events_and_the_application_goes_on(tmp_path: Path) -> None:
    lines, trace = tmp_path / "events.jsonl", tmp_path / "app.pftrace"
    command = [sys.executable, "-c", FULL, str(lines), str(trace)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    for path in (lines, trace):
        assert done.stderr.count(f"File too large: '{path}'") == 1
    text = lines.read_text()
    assert text.endswith("}\n")
    assert 50 < len([json.loads(line) for line in text.splitlines()]) < 1000
    assert 50 < len(Trace(trace.read_bytes()).slices) < 1000
    assert "could not be closed" not in done.stderr


SILENT = """
import asyncio, sys
import callboard as cb


async def main():
    async with cb.System("app") as system:
        device = await system.device("cpu", isolation="thread")
        await device.full((2, 2), 1.0)
        await device.drain()


asyncio.run(main())
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_exporters_of_the_environment_that_fail_are_named_without_logging() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        missing = {
            f"prometheus:{taken.getsockname()[1]}": "in use",
            "jsonl:/no/such/events.jsonl": "No such file or directory: '/no/such/events.jsonl'",
            "perfetto:/dev/full": "No space left on device: '/dev/full'",
            "costs:/dev/full": "No space left on device: '/dev/full'",
        }
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "CALLBOARD_TELEMETRY": ",".join(missing)}
        done = subprocess.run(
            [sys.executable, "-c", SILENT], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 4, done.stderr
    for each, why in missing.items():
        kind = each.partition(":")[0]
        [line] = [line for line in lines if kind in line.lower()]
        assert why in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("kind", ["jsonl", "perfetto"])
async def test_a_file_on_a_full_disk_is_named(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with cb.System("app") as system:
        files: dict[str, Any] = {kind: "/dev/full"}
        telemetry = cb.observe(system, **files)
        system.actor_of(cb.Props(cb.Actor))
        telemetry.flush()
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "No space left on device: '/dev/full'" in record.getMessage()
    assert record.exc_info is None


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
async def test_a_table_of_costs_that_cannot_be_written_is_refused_at_once() -> None:
    async with cb.System("app") as system:
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            cb.observe(system, costs="/dev/full")
