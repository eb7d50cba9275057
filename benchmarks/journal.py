"""Cost of recording: durable records per second, the caller's time, and a loaded service with and without it.

    python benchmarks/journal.py --json journal.json
    python benchmarks/journal.py --quick --device cpu
    python benchmarks/journal.py --postgres "host=/run/postgresql" --redis redis://localhost

Records are those of a message with a number, about 60 bytes. A record counts when it is durable: the file journal has
called ``fdatasync`` behind it, SQLite has committed. Beside the file journal a loop that writes the same frames and
synchronises them once per group, on one thread. The caller's time is that of its own thread's CPU, for a record that
is there, and for a message that has yet to be encoded. The service is a ``DynamicBatchingServer`` over a model that
computes on one core, with 64 clients that each submit the next request with their answer; an answer's time is that of
all threads' CPU, the writer's included, so that what else runs on the machine does not count. It is also measured what
of that the recording takes: the CPU time of its calls before and behind the model, and of the writer's thread.
"""

import argparse
import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from _harness import Bar, Figures, arguments, interleave, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.actors.clock import LoopClock
from callboard.multi_device.replay.codec import Codec
from callboard.multi_device.replay.entries import Input, encode
from callboard.multi_device.replay.journals.frames import frames
from callboard.multi_device.replay.recorder import EntryWriter
from callboard.multi_device.replay.writer import GROUP, JournalWriter

CLIENTS, MAX_BATCH = 64, 32
WIDTHS = (384, 2048, 2048, 8)
ALONE = 2000
"""Records whose put is timed without the writer's thread at work."""
names = (f"bench-{time.time_ns()}-{number}" for number in itertools.count())


class Bought(cb.Msg["Shop"]):
    """A message as a service has them."""

    item: int
    price: float


class Shop(cb.Actor):
    """Its receiver."""

    @Bought.handles
    def bought(self, m: Bought) -> None: ...


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, help="in a round (200,000; with --quick 20,000)")
    parser.add_argument("--seconds", type=float, help="of a loaded service in a round (3; with --quick 0.5)")
    parser.add_argument("--folder", help="where the files lie (the folder for temporary files)")
    parser.add_argument("--postgres", help="conninfo of a PostgreSQL server to measure, too")
    parser.add_argument("--redis", help="URL of a Redis server to measure, too")


def record_of(number: int) -> bytes:
    """What a harness writes of a message."""
    message = Codec().encode(Bought(item=number, price=0.5))
    return encode(Input("/shop/counter", number, "tell", "shop:Bought", message, 17.25, 0))


def committed(make: Callable[[str], Any], records: list[bytes]) -> float:
    """Seconds until all of them are durable, put one by one."""
    name = next(names)
    writer = JournalWriter(make(name), name)
    writer.start()
    try:
        start = time.perf_counter()
        for record in records:
            writer.put(record)
        writer.flush(120.0)
        return time.perf_counter() - start
    finally:
        writer.close()


def by_hand(folder: Path, records: list[bytes]) -> float:
    """The same frames, written and synchronised in groups by this thread."""
    with (folder / next(names)).open("wb", buffering=0) as file:
        start = time.perf_counter()
        for first in range(0, len(records), GROUP):
            file.write(frames(first + 1, records[first : first + GROUP], 0))
            os.fdatasync(file.fileno())
        return time.perf_counter() - start


def on_the_caller(put: Callable[[Any], object], items: list[Any], flush: Callable[[], None]) -> float:
    """CPU seconds of this thread for a call: the least of bursts of :data:`ALONE`."""
    least = float("inf")
    for first in range(0, len(items) - ALONE + 1, ALONE):
        start = time.thread_time()
        for item in items[first : first + ALONE]:
            put(item)
        least = min(least, (time.thread_time() - start) / ALONE)
        flush()
    return least


def model() -> Callable[[list[Any]], list[Any]]:
    """A perceptron of three layers, on this CPU."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(pair, np.float32) for pair in itertools.pairwise(WIDTHS)]
    rows = [np.empty((MAX_BATCH, width), np.float32) for width in WIDTHS]  # made once: what malloc does is not measured

    def run(items: list[Any]) -> list[Any]:
        x = np.stack(items, out=rows[0][: len(items)])
        for w, out in zip(weights, rows[1:], strict=True):
            y = np.matmul(x, w, out=out[: len(items)])
            x = np.maximum(y, 0, out=y)
        return list(x.copy())

    return run


async def served(function: Any, seconds: float) -> float:
    """CPU seconds of this process for an answer."""
    item = np.ones(WIDTHS[0], np.float32)
    answers = 0
    async with cb.DynamicBatchingServer(function, max_batch=MAX_BATCH) as server:
        until, start = time.perf_counter() + seconds, time.process_time()

        async def client() -> None:
            nonlocal answers
            while time.perf_counter() < until:
                await server.submit(item)
                answers += 1

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return (time.process_time() - start) / answers


async def recorded(folder: Path, function: Any, seconds: float, shares: dict[str, list[float]]) -> float:
    """The same with each batch in a file journal; adds to the shares that the recording takes of an answer's time."""
    journal = cb.FileJournal(folder / next(names))
    answers, inside, outside = 0, 0.0, 0.0

    def model(items: list[Any]) -> list[Any]:
        nonlocal answers, inside
        began = time.thread_time()
        try:
            return function(items)  # type: ignore[no-any-return]
        finally:
            inside += time.thread_time() - began
            answers += len(items)

    async with cb.ReplayHarness.with_journal("record", journal) as harness:
        recording = harness.batches(model, "model")

        def timed(items: list[Any]) -> list[Any]:
            nonlocal outside
            began = time.thread_time()
            try:
                return recording(items)
            finally:
                outside += time.thread_time() - began

        thread = harness._writer._thread
        assert thread is not None
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        before = time.clock_gettime(clock)
        taken = await served(timed, seconds)
        written = time.clock_gettime(clock) - before
    shares["before and behind the model"].append((outside - inside) / answers / taken)
    shares["the writer's thread"].append(written / answers / taken)
    return taken


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    count = given.records or (20_000 if given.quick else 200_000)
    seconds = given.seconds or (0.5 if given.quick else 3.0)
    record = Record("journal", given)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        records = [record_of(n) for n in range(1, count + 1)]
        record["bytes of a record"] = len(records[0])
        makers: dict[str, Callable[[str], Any]] = {
            "file": lambda at: cb.FileJournal(folder / at),
            "SQLite": lambda at: cb.SqliteJournal(folder / f"{at}.db"),
            "memory": lambda at: cb.MemoryJournal(),
        }
        if given.postgres:
            makers["PostgreSQL"] = lambda at: cb.PostgresJournal(given.postgres)
        if given.redis:
            makers["Redis"] = lambda at: cb.RedisJournal(given.redis)
        subjects: dict[str, Callable[[], float]] = {
            which: lambda m=make: committed(m, records)  # type: ignore[misc]
            for which, make in makers.items()
        }
        subjects["file, by hand"] = lambda: by_hand(folder, records)
        found = interleave(subjects, given.rounds, "durable")
        rates = {which: [count / taken for taken in times] for which, times in found.items()}
        record["durable"] = table("durable records per second", rates, lambda v: f"{v:,.0f}", "file, by hand")
        callers = _callers(folder, records, given.rounds)
        record["caller"] = table("CPU time of the caller", callers, micros, "put")
        run = model()
        shares: dict[str, list[float]] = {"before and behind the model": [], "the writer's thread": []}
        with threadpoolctl.threadpool_limits(1), asyncio.Runner() as runner:
            load: Figures = interleave(
                {
                    "alone": lambda: runner.run(served(run, seconds)),
                    "recorded": lambda: runner.run(recorded(folder, run, seconds, shares)),
                },
                given.rounds,
                "service",
            )
        record["service"] = table(f"CPU time of an answer, {CLIENTS} clients", load, micros, "alone")
        shares = {name: values[: len(load["alone"])] for name, values in shares.items()}
        record["shares"] = table("of it the recording's", shares, lambda v: f"{v:.2%}", "the writer's thread")
    over = ratios(load, "recorded", "alone")
    record.done(
        tell_bars(
            [
                Bar("durable records per second, file", spread(rates["file"])["median"], 200_000, at_least=True),
                Bar("the caller's time for a record, us", spread(callers["put"])["median"] * 1e6, 3.0, at_least=False),
                Bar("a recorded service: CPU time of an answer", over and over["median"], 1.05, at_least=False),
            ]
        )
    )


def _callers(folder: Path, records: list[bytes], rounds: int) -> Figures:
    """A record that is there, and a message that is encoded first."""
    messages = [Bought(item=n, price=0.5) for n in range(len(records))]

    def put() -> float:
        writer = JournalWriter(cb.FileJournal(folder / next(names)), "bench", linger=0.01)
        writer.start()
        try:
            return on_the_caller(writer.put, records, writer.flush)
        finally:
            writer.close()

    def message() -> float:
        writer = JournalWriter(cb.FileJournal(folder / next(names)), "bench", linger=0.01)
        writer.start()
        pen = EntryWriter(writer, Codec(), LoopClock(), True)
        try:
            return on_the_caller(lambda m: pen.input("/shop/counter", 1, "tell", m, 0), messages, writer.flush)
        finally:
            writer.close()

    return interleave({"put": put, "message": message}, rounds, "caller")


if __name__ == "__main__":
    main()
