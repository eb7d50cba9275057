"""What is exported equals what was done, also over the loss of a device; the real Prometheus client reads it."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard import observability
from callboard.events.ring import EVENTS
from callboard.telemetry import TABLE, Snapshot
from callboard.telemetry.export.prometheus import Text
from callboard.telemetry.export.scrape import Scrape

LIMIT = 60.0
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Multiply(cb.Request["Worker", float]):
    times: int


class Fail(cb.Msg["Worker"]):
    """Raises."""


class Worker(cb.Actor):
    def __init__(self, device: cb.Device) -> None:
        self.device = device

    @Multiply.handles
    async def multiply(self, message: Multiply) -> float:
        a = self.device.put(np.eye(4, dtype=np.float32))
        for _ in range(message.times):
            a = self.device.blas.gemm(a, a)
        return float((await a.get())[0, 0])

    @Fail.handles
    def fail(self, message: Fail) -> None:
        raise ZeroDivisionError


def parsed(text: str) -> Samples:
    """Series by name and labels: read by prometheus_client where it is installed."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        found = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
        labels = [frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inside)) for _, inside, _ in found]
        return {(name, label): float(value) for (name, _, value), label in zip(found, labels, strict=True)}
    families = list(text_string_to_metric_families(text))
    return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


class Run:
    """One observed application, and what it exported."""

    def __init__(self) -> None:
        self.before: Samples = {}
        self.page: Samples = {}
        self.head = ""
        self.text = ""
        self.snapshot: Any = None
        self.lines: list[dict[str, Any]] = []
        self.lost = 0


async def application(run: Run, folder: Path) -> None:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        telemetry = cb.observe(system, "node-1", jsonl=str(folder / "events.jsonl"))
        assert observability.install(system) is telemetry
        device = await system.device("cpu", isolation="process", standby=None, max_restarts=None)
        worker = system.actor_of(cb.Props(Worker, device), "worker")
        async with cb.DynamicBatchingServer(lambda items: items, max_batch=4, name="echo") as server:
            for _ in range(3):
                assert await worker.ask(Multiply(times=10), timeout=LIMIT) == 1
            await asyncio.gather(*(server.submit(n) for n in range(10)))
            await telemetry.refresh(LIMIT)
            run.before = parsed(Text().render(telemetry.collect()))
            # A loss with ops in flight, whose number only the loss itself tells.
            events = device.events()
            pid = device.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            a = device.put(np.eye(4, dtype=np.float32))
            failed = [device.blas.gemm(a, a) for _ in range(5)]
            os.kill(pid, signal.SIGKILL)
            lost = await anext(events)
            assert isinstance(lost, cb.Lost)
            run.lost = lost.failed
            assert isinstance(await anext(events), cb.Recovered)
            await events.aclose()  # type: ignore[attr-defined]
            for each in failed:
                with pytest.raises(cb.ContextPoisoned):
                    await each
            assert await worker.ask(Multiply(times=7), timeout=LIMIT) == 1
            worker.tell(Fail())
            assert await worker.ask(Multiply(times=1), timeout=LIMIT) == 1  # by the next instance
            await device.drain()
            scrape = Scrape(telemetry, 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", scrape.port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            run.head, run.text = head.decode(), body.decode()
            run.page = parsed(run.text)
            run.snapshot = telemetry.sample()
    assert EVENTS.ring is None  # the end of the system is that of the recording
    run.lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run()
    asyncio.run(application(run, tmp_path_factory.mktemp("telemetry")))
    return run


def test_counts_of_ops_equal_what_was_called_also_over_a_loss(run: Run) -> None:
    gemm = {"device": "cpu:0", "op": "blas.gemm"}
    assert value(run.before, "callboard_op_calls_total", **gemm) == 30
    assert value(run.before, "callboard_op_failures_total", **gemm) == 0
    assert value(run.page, "callboard_op_calls_total", **gemm) == 30 + 5 + 7 + 1
    assert value(run.page, "callboard_op_failures_total", **gemm) == 5
    assert value(run.page, "callboard_op_failures_total", device="cpu:0", op="memory.upload") == run.lost - 5
    assert value(run.page, "callboard_device_ops_failed_total", device="cpu:0") == run.lost
    calls = sum(count for (name, _), count in run.page.items() if name == "callboard_op_calls_total")
    completed = value(run.page, "callboard_device_ops_completed_total", device="cpu:0")
    assert calls == completed + run.lost


def test_losses_and_recoveries(run: Run) -> None:
    assert value(run.before, "callboard_context_generation", device="cpu:0") == 1
    assert value(run.page, "callboard_context_generation", device="cpu:0") == 2
    assert value(run.page, "callboard_context_losses_total", device="cpu:0") == 1
    assert value(run.page, "callboard_context_recovery_seconds_count", device="cpu:0") == 1
    [device] = run.snapshot.devices
    assert device.last_loss.error == "ContextPoisoned"
    assert device.last_loss.failed == run.lost
    assert device.last_loss.how == "cold"
    assert any("blas.gemm" in suspect for suspect in device.last_loss.suspects)


def test_some_ops_are_measured_in_the_host_also_after_the_loss(run: Run) -> None:
    def measured(samples: Samples) -> float:
        return sum(count for (name, _), count in samples.items() if name == "callboard_op_seconds_count")

    assert measured(run.page) > measured(run.before) >= 1


def test_counts_of_actors(run: Run) -> None:
    worker = {"actor": "/app/worker"}
    assert value(run.page, "callboard_actor_messages_total", **worker) == 6
    assert value(run.page, "callboard_actor_failures_total", **worker) == 1
    assert value(run.page, "callboard_actor_restarts_total", **worker) == 1
    assert value(run.page, "callboard_actor_mailbox_depth", **worker) == 0
    assert value(run.page, "callboard_actor_busy_seconds_total", **worker) > 0


def test_counts_of_servers(run: Run) -> None:
    server = {"server": "echo", "kind": "DynamicBatchingServer"}
    assert value(run.page, "callboard_server_requests_total", **server, end="completed") == 10
    assert value(run.page, "callboard_server_total_seconds_count", **server) == 10
    assert value(run.page, "callboard_server_batch_size_sum", **server) == 10


def test_processes_and_memory(run: Run) -> None:
    roles = [dict(labels)["role"] for name, labels in run.page if name == "callboard_process_resident_memory_bytes"]
    assert sorted(roles) == ["application", "host"]
    assert value(run.page, "callboard_device_memory_bytes", device="cpu:0", kind="total") > 0


def test_everything_exported_is_in_the_table_with_its_type_and_labels(run: Run) -> None:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", run.text, re.MULTILINE))
    assert len(kinds) == len(re.findall("^# TYPE ", run.text, re.MULTILINE))  # each once
    assert {name: TABLE[name].kind for name in kinds} == kinds
    for name, labels in run.page:
        family = name if name in TABLE else re.sub("_(bucket|sum|count)$", "", name)
        assert {label for label, _ in labels} - {"le"} == set(TABLE[family].labels)


def test_a_scraper_gets_the_content_type_of_the_text_format(run: Run) -> None:
    assert run.head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in run.head
    assert value(run.page, "callboard_events_dropped_total") == 0


def test_the_snapshot_is_plain_data(run: Run) -> None:
    assert msgspec.json.decode(msgspec.json.encode(run.snapshot), type=Snapshot).devices[0].generation == 2
    assert {actor.path for actor in run.snapshot.actors} >= {"/app", "/app/worker"}


def test_json_lines_tell_the_same(run: Run) -> None:
    def lines(kind: str) -> list[dict[str, Any]]:
        return [line for line in run.lines if line["kind"] == kind]

    assert len([line for line in lines("op") if line["op"] == "blas.gemm"]) == 43
    assert {line["actor"] for line in lines("op") if line["op"] == "memory.download"} == {"/app/worker"}
    assert [line["end"] for line in lines("request")] == ["completed"] * 10
    assert sum(line["size"] for line in lines("batch")) == 10
    assert [(line["ops"], line["generation"]) for line in lines("lost")] == [(run.lost, 1)]
    assert [line["standby"] for line in lines("recovered")] == ["cold"]
    assert [line["cause"] for line in lines("actor") if line["what"] == "failed"] == ["ZeroDivisionError"]
    assert [line["at"] for line in lines("op")] == sorted(line["at"] for line in lines("op"))
