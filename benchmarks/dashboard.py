"""The dashboard of an application with 1,000 actors: processor time at ten snapshots a second, and the first paint.

    python benchmarks/dashboard.py --json dashboard.json

The application has a device in a process of its own; the page is served by uvicorn in the application's process, as
by ``callboard serve --dashboard``. A reader in another process takes all frames; what the application takes meanwhile
is compared with what it takes without a reader. First paint is what Chromium says of a page that it opens anew each
time, where playwright and Chromium (Debian's package) are installed.
"""

import asyncio
import contextlib
import importlib
import shutil
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from _harness import Bar, arguments, tell_bars
from _record import Record

import callboard as cb
from callboard import observability

SHARE, PAINT = 0.05, 0.3
ACTORS = 1000
TOKEN = "benchmark"

READER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("GET", "/events", headers={"authorization": "Bearer " + sys.argv[2]})
response = connection.getresponse()
while line := response.readline():
    if line.startswith(b"data: "):
        print(len(line), flush=True)
"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]


class Go(cb.Msg["Worker"]):
    """Something to count."""


class Worker(cb.Actor):
    """Counts."""

    @Go.handles
    def go(self, message: Go) -> None:
        """Nothing else."""


@contextlib.asynccontextmanager
async def application(device: str) -> AsyncIterator[int]:
    """The port of the page."""
    import uvicorn

    async with cb.System("benchmark") as system:
        cb.observe(system)
        await system.device(device, isolation="process", standby=None)
        for number in range(ACTORS):
            system.actor_of(cb.Props(Worker), f"worker-{number:04}").tell(Go())
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(observability.dashboard(TOKEN), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        task = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def _idle(seconds: float) -> float:
    """Share of a core that the application takes by itself."""
    began, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - used) / (time.perf_counter() - began)


async def _read(port: int, frames: int) -> dict[str, float]:
    """Share of a core with a reader, frames per second, and bytes of a frame."""
    command = [sys.executable, "-c", READER, str(port), TOKEN]
    reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert reader.stdout is not None
    try:
        sizes = [int(await reader.stdout.readline())]  # the first one waits for the host
        began, used = time.perf_counter(), time.process_time()
        sizes += [int(await reader.stdout.readline()) for _ in range(frames)]
        seconds, spent = time.perf_counter() - began, time.process_time() - used
    finally:
        reader.kill()
        await reader.wait()
    return {"share": spent / seconds, "frames per second": frames / seconds, "bytes": statistics.median(sizes)}


async def _paint(port: int, times: int) -> float | None:
    """The median of first paints in seconds; None without a browser."""
    chromium = shutil.which("chromium")
    try:
        playwright: Any = importlib.import_module("playwright.async_api")
    except ImportError:
        return None
    if chromium is None:
        return None
    found: list[float] = []
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for _ in range(times):
            page = await browser.new_page(bypass_csp=True)
            await page.goto(f"http://127.0.0.1:{port}/?token={TOKEN}")
            await page.wait_for_function("window.callboard && window.callboard.frames > 3")
            entry = "performance.getEntriesByName('first-contentful-paint')[0]"
            await page.wait_for_function(entry)
            found.append(await page.evaluate(f"{entry}.startTime") / 1e3)
            await page.close()
        await browser.close()
    return statistics.median(found)


async def measure(device: str, frames: int, times: int) -> dict[str, Any]:
    """All figures."""
    async with application(device) as port:
        await asyncio.sleep(1)
        alone = await _idle(frames / 10)
        found: dict[str, Any] = await _read(port, frames)
        return {**found, "alone": alone, "first paint": await _paint(port, times)}


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__, 5)
    record = Record("dashboard", given)
    found = asyncio.run(measure(given.device, 20 if given.quick else 100, 1 if given.quick else given.rounds))
    for name, value in found.items():
        print(f"{name:20} {'-' if value is None else format(value, '12.4g')}")
    record.update({"1,000 actors": found})
    bars = [
        Bar("share of a core at 10 Hz", found["share"] - found["alone"], SHARE, at_least=False),
        Bar("first paint, s", found["first paint"], PAINT, at_least=False),
    ]
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
