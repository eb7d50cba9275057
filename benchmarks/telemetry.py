"""Cost of telemetry: an event, a scrape, and the throughput of small products and of batches with it on and off.

    python benchmarks/telemetry.py --json telemetry.json

Off and on alternate in one process, on the same device. On means ``cb.observe(system)``: every event is written and
counted, one op in 127 is measured. ``traced`` also writes a trace file, for which all ops are measured.

Events and texts are measured in processor time, the least of several runs: an event in a ring that is drained, as it is
in an application, and in one that overflows, where each event also drops the oldest. A peer for the text of 10,000
series is prometheus_client, where it is installed.

Throughput is that of an application that has been observed for a while: a round begins when the GPUs have been read
once, which loads NVML and takes up to a second of another thread.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Bar, Figures, arguments, interleave, ratios, table, tell_bars
from _record import Record

import callboard as cb
from callboard.events.kinds import BATCH, MARK, MESSAGE, OP
from callboard.events.ring import EVENTS, Event, Ring, now
from callboard.events.tracing import Sampler, caused_by, is_sampled
from callboard.patterns.requests.entries import Entry
from callboard.telemetry import family
from callboard.telemetry.export.perfetto import Perfetto
from callboard.telemetry.export.prometheus import Text

EVENT_ON, EVENT_OFF = 0.15e-6, 0.03e-6
SAMPLED_OUT = 0.3e-6
TEXT = 5e-3
TRACE_EVENT = 1e-6
KEPT = 0.97
"""Part of the throughput that is left with telemetry on."""


VAR: ContextVar[str | None] = ContextVar("of a client", default=None)
"""Stands for the context in which a request is submitted, which is not that of the function."""


class Message:
    """A message of an actor."""


def best(run: Callable[[], float], times: int) -> float:
    """The shortest of some runs: what the code takes, without its neighbours on the machine."""
    return min(run() for _ in range(times))


# -- an event ----------------------------------------------------------------------------------------------------------


DRAINED = 5_000
"""Events between two drains: a hundred thousand a second."""


def _hook(count: int, drained: int = DRAINED) -> float:
    """Seconds of a hook as the library has it, less those of the loop."""
    seconds = 0.0
    for _ in range(count // drained):
        began = time.process_time()
        for _ in range(drained):
            ring = EVENTS.ring
            if ring is not None:
                ring.append((next(ring.numbers), now(), MARK, "where", 1, "what"))
        middle = time.process_time()
        for _ in range(drained):
            pass
        seconds += (middle - began) - (time.process_time() - middle)
        if EVENTS.ring is not None and drained < count:
            EVENTS.ring.clear()
    return max(0.0, seconds) / count


@contextlib.contextmanager
def _ring() -> Iterator[Ring]:
    ring = EVENTS.ring = Ring()
    try:
        yield ring
    finally:
        EVENTS.off()


def events(count: int, times: int) -> dict[str, float]:
    """Seconds of an event."""
    found = {"off": best(lambda: _hook(count), times)}
    with _ring() as ring:
        found["on"] = best(lambda: _hook(count), times)
        found["on, overflowing"] = best(lambda: _hook(count, count), times)
        drained = ring.drain()
    found["drained"] = best(lambda: _drain(drained), times)
    found["request, sampled out"] = best(lambda: _sampled_out(count // 10), times)
    found["in a trace file"] = best(lambda: _traced(count // 10), times)
    return found


def _sampled_out(count: int) -> float:
    """What a request costs that is sampled out: the decision, and its context around the function."""
    sampler, entry = Sampler(0.0, 100), Entry(0, None, 0.0)
    began = time.process_time()
    for _ in range(count):
        entry.parent = VAR.get()
        entry.trace = sampler.begin(entry.parent)
        caused_by([entry])
        if entry.trace and is_sampled(entry.trace):
            raise AssertionError
    middle = time.process_time()
    for _ in range(count):
        pass
    return ((middle - began) - (time.process_time() - middle)) / count


def _drain(events: list[Event]) -> float:
    ring = Ring()
    ring.extend(events)
    began = time.process_time()
    ring.drain()
    return (time.process_time() - began) / len(events)


def _traced(count: int) -> float:
    written: list[Event] = []
    for n in range(count // 2):
        written.append((2 * n, n * 1000, OP, "cuda:0", n, "blas.gemm", "/app/worker", None))
        written.append((2 * n + 1, n * 1000 + 900, MESSAGE, "/app/worker", Message, n * 1000 - 50, True))
        written.append((2 * n + 1, n * 1000 + 900, BATCH, "server", 8, 1e-7, True, None, ()))
    with tempfile.TemporaryDirectory() as folder:
        file = Perfetto(Path(folder) / "t.pftrace", "benchmark")
        began = time.process_time()
        file.take(written)
        seconds = time.process_time() - began
        file.close()
    return seconds / (2 * file.events)  # a slice is two events of the file: its begin and its end


# -- a scrape ----------------------------------------------------------------------------------------------------------


def texts(times: int) -> dict[str, float]:
    """Seconds of processor time for 10,000 series: the second scrape, as all later ones."""
    labels = [(f"/system/pool/worker-{n}",) for n in range(1000)]
    names = [
        *("callboard_actor_mailbox_depth", "callboard_actor_messages_total", "callboard_actor_failures_total"),
        *("callboard_actor_busy_seconds_total", "callboard_actor_wait_seconds", "callboard_actor_restarts_total"),
    ]
    families = [family(name) for name in names]
    families += [family(names[n])._replace(name=f"callboard_further_{n}") for n in range(4)]
    groups = [(each, [(label, n * 0.5) for n, label in enumerate(labels)]) for each in families]
    writer = Text()
    writer.render(groups)

    def ours() -> float:
        began = time.process_time()
        writer.render(groups)
        return time.process_time() - began

    found = {"callboard": best(ours, times)}
    with contextlib.suppress(ImportError):
        found["prometheus_client"] = best(_peer(labels), times)
    return found


def _peer(labels: list[tuple[str]]) -> Callable[[], float]:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily

    class Source:
        def collect(self) -> Iterator[Any]:
            for n in range(10):
                metric = GaugeMetricFamily(f"callboard_metric_{n}", "what", labels=["actor"])
                for k, label in enumerate(labels):
                    metric.add_metric(label, k * 0.5)
                yield metric

    registry = CollectorRegistry()
    registry.register(Source())

    def run() -> float:
        began = time.process_time()
        generate_latest(registry)
        return time.process_time() - began

    return run


# -- throughput --------------------------------------------------------------------------------------------------------


class Subjects:
    """One application, whose throughput is measured with telemetry off, on, and with a trace file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, system: cb.System, folder: Path) -> None:
        self._loop = loop
        self._system = system
        self._folder = folder

    def of(self, work: Callable[[], Coroutine[Any, Any, float]], how: str) -> Callable[[], float]:
        """Work per second."""

        async def observed() -> float:
            exporters = {"perfetto": str(self._folder / "t.pftrace")} if how == "traced" else {}
            telemetry = cb.observe(self._system, **exporters)
            await telemetry.devices.measure()
            await telemetry.refresh(timeout=10.0)
            try:
                return await work()
            finally:
                await telemetry.close()

        return lambda: self._loop.run_until_complete(work() if how == "off" else observed())


def products(device: cb.Device, count: int) -> Callable[[], Coroutine[Any, Any, float]]:
    """Products of 64 x 64 per second, called one after the other and awaited at the end."""
    a = device.put(np.ones((64, 64), np.float32))

    async def run() -> float:
        began = time.perf_counter()
        last = a
        for n in range(count):
            last = device.blas.gemm(a, a)
            if n % 512 == 511:
                await last
        await last
        return count / (time.perf_counter() - began)

    return run


def batches(server: Any, count: int) -> Callable[[], Coroutine[Any, Any, float]]:
    """Requests per second of 128 clients, each with one request at a time."""

    async def client() -> None:
        for n in range(count // 128):
            await server.submit(n)

    async def run() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(128)))
        return count / (time.perf_counter() - began)

    return run


async def _open(device: str, isolation: str, system: cb.System) -> cb.Device:
    found: cb.Device = await system.device(device, isolation=isolation, standby=None)
    await products(found, 512)()
    return found


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__, 15)
    record = Record("telemetry", given)
    count, times = (100_000, 5) if given.quick else (1_000_000, 9)
    ops, requests = (2_000, 2_560) if given.quick else (20_000, 25_600)
    each, text = events(count, times), texts(times)
    for name, seconds in each.items():
        print(f"event, {name:18} {seconds * 1e9:10.1f} ns")
    for name, seconds in text.items():
        print(f"10,000 series, {name:18} {seconds * 1e3:8.2f} ms of processor time")
    found: dict[str, Figures] = {}
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        for isolation in ("thread", "process"):
            system = loop.run_until_complete(cb.System("benchmark").start())
            subjects = Subjects(loop, system, Path(folder))
            device = loop.run_until_complete(_open(given.device, isolation, system))
            work = products(device, ops)
            name = f"products of 64 x 64, {isolation}, per second"
            found[name] = interleave(
                {how: subjects.of(work, how) for how in ("off", "on", "traced")}, given.rounds, name
            )
            if isolation == "thread":
                server = cb.DynamicBatchingServer(lambda items: items, max_batch=32, name="echo")
                loop.run_until_complete(server.start())
                name = "closed-128 batching, requests per second"
                work = batches(server, requests)
                found[name] = interleave({how: subjects.of(work, how) for how in ("off", "on")}, given.rounds, name)
                loop.run_until_complete(server.stop())
            loop.run_until_complete(system.stop())
    loop.close()
    results: dict[str, Any] = {"event": each, "10,000 series": text}
    results |= {name: table(name, figures, lambda rate: f"{rate:,.0f}", "off") for name, figures in found.items()}
    bars = [
        Bar("an event when on, s", each["on"], EVENT_ON, at_least=False),
        Bar("a hook when off, s", each["off"], EVENT_OFF, at_least=False),
        Bar("a request that is sampled out, s", each["request, sampled out"], SAMPLED_OUT, at_least=False),
        Bar("an event of a trace file, s", each["in a trace file"], TRACE_EVENT, at_least=False),
        Bar("10,000 series, s of processor time", text["callboard"], TEXT, at_least=False),
    ]
    for name, figures in found.items():
        ratio = ratios(figures, "on", "off")
        bars.append(Bar(f"{name}, on to off", None if ratio is None else ratio["median"], KEPT, at_least=True))
    record.update(results)
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
