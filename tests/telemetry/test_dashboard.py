"""The page: what it is sent, who gets it, and, in a real browser, that it shows a lost context."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from tests.cli.test_top import snapshot
from tests.telemetry.shop import shop

import callboard as cb
from callboard.telemetry.dashboard import feed as feeding
from callboard.telemetry.dashboard.app import dashboard
from callboard.telemetry.dashboard.feed import Feed
from callboard.telemetry.dashboard.thinning import ACTORS, frame_of
from callboard.telemetry.observed import snapshot_of_all

TOKEN = "a secret"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"]


def actor(number: int) -> dict[str, Any]:
    values = {"actor": "Worker", "state": "running", "depth": number % 7, "restarts": 0, "handled": number}
    return {**values, "path": f"/shop/worker-{number:04}", "failed": 0, "busy": 0.0, "wait": 0.0}


def test_a_frame_is_thinned() -> None:
    whole = snapshot(actors=[actor(number) for number in range(1000)])
    frame = msgspec.json.decode(frame_of(whole))
    assert len(frame["actors"]) == ACTORS
    assert {each["depth"] for each in frame["actors"]} == {6}
    assert frame["left_out"] == {"actors": 900, "ops": 0}
    assert frame["totals"]["actors"] == 1000
    assert len(frame_of(whole)) < 40_000


async def test_nothing_is_taken_while_nobody_looks() -> None:
    taken = 0

    async def take() -> Any:
        nonlocal taken
        taken += 1
        return snapshot()

    feed = Feed(take)
    assert taken == 0
    frames = feed.frames()
    first, second = await anext(frames), await anext(frames)
    assert msgspec.json.decode(first)["system"] == msgspec.json.decode(second)["system"] == "shop"
    await frames.aclose()
    before = taken
    await asyncio.sleep(0)
    assert taken == before
    again = feed.frames()
    await anext(again)
    assert taken > before
    await again.aclose()


@pytest.mark.parametrize("kind", [ConnectionResetError, ValueError])
async def test_viewers_are_told_of_the_end(kind: type[Exception]) -> None:
    async def ended() -> Any:
        raise kind("the application has ended")

    feed = Feed(ended)
    for _ in range(2):
        with pytest.raises(kind, match="has ended"):
            await anext(feed.frames())


def kill(device: cb.Device) -> None:
    victim = device.health().host_pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)


@asynccontextmanager
async def served(feed: Feed) -> AsyncIterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))  # a request waits there until it is served
    config = uvicorn.Config(dashboard(feed, TOKEN), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def test_only_who_has_the_token_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take() -> Any:
        return snapshot(system="<b>&\n\n")

    monkeypatch.setattr(feeding, "VIEWERS", 1)
    async with served(Feed(take)) as base, httpx.AsyncClient(base_url=base, timeout=30) as client:
        for path in ("/", "/events", "/?token=wrong", "/?token=%ff%00"):
            assert (await client.get(path)).status_code == 403, path
        for path in ("/..%2fapp.py", "/dashboard.html", "/nothing"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.post("/")).status_code == 405
        there = await client.get("/", params={"token": TOKEN})
        assert (there.status_code, there.headers["location"]) == (303, "/")
        assert "httponly" in there.headers["set-cookie"].lower()
        assert "samesite=strict" in there.headers["set-cookie"].lower()
        page = await client.get("/")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "dashboard.js" in page.text
        async with client.stream("GET", "/events") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            lines = events.aiter_lines()
            while not (line := await anext(lines)).startswith("data: "):
                pass
            assert msgspec.json.decode(line[6:])["system"] == "<b>&\n\n"
            assert (await client.get("/events")).status_code == 503


SCREENSHOTS = {
    "dashboard-light": ("light", 1200, 960),
    "dashboard-dark": ("dark", 1200, 960),
    "dashboard-telephone": ("dark", 390, 844),
}
"""Colours, width and height of the pictures in the guide: ``scripts/dev screenshots`` writes them."""


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_browser_shows_a_lost_context(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.async_api", reason="playwright drives the browser")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian's package chromium)")
    pictures = Path(os.environ.get("CALLBOARD_TEST_SCREENSHOTS", tmp_path))
    async with shop() as (_, device), served(Feed(snapshot_of_all)) as base, playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=FLAGS)
        view = {"width": 390, "height": 800}
        page = await browser.new_page(viewport=view, color_scheme="dark", bypass_csp=True)  # for what is evaluated here
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.goto(f"{base}/?token=a%20secret")
        await page.wait_for_function("window.callboard && window.callboard.generations[0] === 1")
        await page.wait_for_function("performance.getEntriesByName('first-contentful-paint')[0]")
        await page.wait_for_function("window.callboard.frames > 60", timeout=120_000)
        kill(device)
        await page.wait_for_function("window.callboard.generations[0] === 2", timeout=120_000)
        await page.wait_for_selector(".track .takeover")
        assert await page.locator(".track .mark").count() == 1
        assert [await each.inner_text() for each in await page.locator(".track .bar").all()] == ["1", "2"]
        assert "ContextPoisoned" in await page.inner_text(".lane .lost")
        assert "prices" in await page.inner_text("#residents")
        assert "worker-01" in await page.inner_text("#actors")
        assert "ranking" in await page.inner_text("#servers")
        before = await page.evaluate("window.callboard.frames")
        await page.wait_for_function(f"window.callboard.frames > {before + 40}", timeout=120_000)
        for name, (colors, width, height) in SCREENSHOTS.items():
            await page.emulate_media(color_scheme=colors)
            await page.set_viewport_size({"width": width, "height": height})
            drawn = await page.evaluate("window.callboard.drawn")
            await page.wait_for_function(f"window.callboard.drawn > {drawn}", timeout=120_000)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width  # no sideways scrolling
            await page.screenshot(path=pictures / f"{name}.png")
            assert (pictures / f"{name}.png").stat().st_size < 150_000
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.close()
        await browser.close()
        assert errors == []
