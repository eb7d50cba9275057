"""Players: frames for viewers of any speed, sliders, GIF files, and the page in a real browser."""

import asyncio
import os
import shutil
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import callboard as cb
from callboard.realtime.play.app import play_app
from callboard.realtime.play.gif import write_gif
from callboard.realtime.play.players import PLAYERS
from callboard.realtime.play.show import Show

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

TOKEN = "a secret"


@asynccontextmanager
async def showing(name: str = "particles", width: int = 32, height: int = 24) -> AsyncIterator[Show]:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        Show(gpu, PLAYERS[name], fps=240, width=width, height=height) as show,
    ):
        yield show


async def test_a_viewer_gets_the_newest_frame_and_slow_ones_get_fewer() -> None:
    async with showing() as show:
        first = await show.newest(-1)
        assert (first.width, first.height, len(first.pixels)) == (32, 24, 32 * 24 * 3)
        assert len(set(first.pixels)) > 3  # something is drawn
        fast = first
        for _ in range(5):
            fast = await show.newest(fast.frame.number)
        slow = await show.newest(first.frame.number)
        assert slow.frame.number >= fast.frame.number > first.frame.number
        assert slow.pixels != first.pixels


@pytest.mark.parametrize("name", sorted(set(PLAYERS) - {"particles"}))
async def test_all_that_can_be_drawn_moves_with_time_and_sliders(name: str) -> None:
    async with showing(name) as show:
        first = await show.newest(-1)
        assert len(set(first.pixels)) > 3
        for slider in show.player.sliders:
            await show.set(slider.name, (slider.low + slider.high) / 2)
        later = await show.newest(first.frame.number + 1)
        assert later.pixels != first.pixels
        assert later.frame.time > first.frame.time


def test_the_command_lists_players_and_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from callboard.cli.parser import run

    assert run(["play"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PLAYERS)
    small = ["--device", "cpu", "--size", "32x24", "--frames", "3"]
    assert run(["play", "filters", *small, "--gif", str(tmp_path / "a.gif")]) == 0
    assert (tmp_path / "a.gif").stat().st_size > 100
    assert "frame 3 of 3\n" in capsys.readouterr().err
    assert run(["play", "filters", *small, "--gif", str(tmp_path / "b.gif"), "--fps", "60"]) == 2
    assert "--fps is 60; a GIF has" in capsys.readouterr().err
    assert run(["play", "filters", *small, "--video", str(tmp_path / "a.txt")]) == 2
    assert "callboard play:" in capsys.readouterr().err


async def test_a_simulation_that_fails_ends_the_wait() -> None:
    async with showing() as show:
        await show.newest(-1)
        await show.simulation.stop()
        with pytest.raises(cb.ActorStopped):
            await show.newest(1 << 40)


async def test_the_application_gives_nothing_without_the_token_and_moves_sliders() -> None:
    async with showing() as show:
        transport = httpx.ASGITransport(play_app(show, "particles", TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for path in ("/", "/about", "/frame", "/?token=no"):
                assert (await client.get(path)).status_code == 403
            assert (await client.post("/set", json={"name": "drag", "value": 1})).status_code == 403
            assert (await client.get(f"/?token={TOKEN}")).status_code == 303
            assert "canvas" in (await client.get("/")).text
            told = (await client.get("/about")).json()
            assert [slider["name"] for slider in told["sliders"]] == [one.name for one in show.player.sliders]
            frame = await client.get("/frame?after=-1")
            assert (frame.headers["X-Size"], len(frame.content)) == ("32 24", 32 * 24 * 3)
            assert (await client.post("/set", json={"name": "drag", "value": 1.5})).status_code == 200
            simulation: Any = show.simulation
            assert simulation.config.drag == 1.5
            wrong: Any
            for wrong in ({"name": "mass", "value": 1}, {"name": "drag", "value": 99}, {"name": "drag"}, []):
                refused = await client.post("/set", json=wrong)
                assert refused.status_code == 400, wrong
                assert refused.json()["error"]


def test_a_gif_has_the_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    colours = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 0, 255]], "u1")
    frames = [colours[rng.integers(0, 4, (200, 99))] for _ in range(3)]  # more codes than a table has
    frames += [frames[2], frames[2].copy()]
    frames[4][7:9, 3:6] = colours[2]
    size = write_gif(tmp_path / "a.gif", frames, fps=25)
    assert size == (tmp_path / "a.gif").stat().st_size < frames[0].size
    data = (tmp_path / "a.gif").read_bytes()
    assert data[:6] == b"GIF89a"
    assert struct.unpack("<HH", data[6:10]) == (99, 200)
    assert decoded(data) == [frame.tolist() for frame in frames]
    with pytest.raises(ValueError, match="one or more of one shape"):
        write_gif(tmp_path / "b.gif", [])
    for shape, dtype, fps, says in (
        ((0, 4, 3), "u1", 30, "0 by 4; a GIF has 1 to 65535"),
        ((1, 1 << 16, 3), "u1", 30, "1 by 65536; a GIF"),
        ((4, 4, 3), "u1", 0, "fps is 0; a GIF has"),
        ((4, 4, 3), "u1", float("nan"), "fps is nan"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            write_gif(tmp_path / "b.gif", [np.zeros(shape, dtype)], fps=fps)
    assert not (tmp_path / "b.gif").exists()


def test_a_gif_takes_floats_and_keeps_the_time_of_all(tmp_path: Path) -> None:
    frames = np.zeros((30, 2, 3, 3), "f4")
    frames[:, 0] = 1.0
    for fps, wanted in ((30, 100), (24, 125), (50, 60), (7, 429)):
        write_gif(tmp_path / "a.gif", list(frames), fps=fps)
        data = (tmp_path / "a.gif").read_bytes()
        parts = data.split(b"\x21\xf9\x04\x05")[1:]
        delays = [int.from_bytes(part[:2], "little") for part in parts]
        assert (sum(delays), len(delays)) == (wanted, 30)
        assert max(delays) - min(delays) <= 1 < min(delays)
    assert decoded(data)[0] == [[[255] * 3] * 3, [[0] * 3] * 3]
    wrong: Any
    for wrong, message in ((0, "fps is 0; a GIF has"), (60, "0.002 to 50"), (float("nan"), "finite")):
        with pytest.raises(ValueError, match=message):
            write_gif(tmp_path / "b.gif", frames, fps=wrong)
    for wrong, message in (
        (frames * 255, "frame 0 has floats from 0 to 255; pass floats from 0 to 1"),
        (frames * np.nan, "floats from nan to nan"),
    ):
        with pytest.raises(ValueError, match=message):
            write_gif(tmp_path / "b.gif", wrong)
    with pytest.raises(TypeError, match="frame 0 has the dtype int64; pass u8"):
        write_gif(tmp_path / "b.gif", frames.astype("i8"))
    assert not (tmp_path / "b.gif").exists()


def decoded(data: bytes) -> list[Any]:
    """The frames, by the general algorithm of LZW; 255 is what stays as it was."""
    palette = np.frombuffer(data[13 : 13 + 3 * 256], "u1").reshape(-1, 3)
    at, found = 13 + 3 * 256 + 19, []
    width_of, height_of = struct.unpack("<HH", data[6:10])
    shown = np.zeros((height_of, width_of), "i4")
    while data[at] != 0x3B:
        at += 8
        x, y, w, h = struct.unpack("<HHHH", data[at + 1 : at + 9])
        size, at, packed = data[at + 10], at + 11, b""
        while data[at]:
            packed += data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
        at += 1
        bits = np.unpackbits(np.frombuffer(packed, "u1"), bitorder="little")
        pixels: list[int] = []
        place, width, clear = 0, size + 1, 1 << size
        table: list[list[int]] = []
        previous: list[int] = []
        while True:
            code = int(bits[place : place + width] @ (1 << np.arange(width)))
            place += width
            if code == clear:
                table, width, previous = [[n] for n in range(clear)] + [[], []], size + 1, []
                continue
            if code == clear + 1:
                break
            entry = table[code] if code < len(table) else [*previous, previous[0]]
            if previous:
                table.append([*previous, entry[0]])
                width = max(width, min(len(table).bit_length(), 12))
            pixels += entry
            previous = entry
        part, new = shown[y : y + h, x : x + w], np.array(pixels).reshape(h, w)
        part[new != 255] = new[new != 255]
        found.append(palette[shown].tolist())
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["cloth", "fluid", "particles", "swarm"])
async def test_in_a_browser(name: str, tmp_path: Path) -> None:
    browsers: Any = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium")
    import socket

    import uvicorn

    pictures = Path(os.environ.get("CALLBOARD_TEST_SCREENSHOTS", tmp_path))
    slider = PLAYERS[name].sliders[-1]
    async with showing(name, 320, 240) as show, browsers.async_playwright() as driver:
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(play_app(show, name, TOKEN), log_level="error"))
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            view = {"width": 400, "height": 500}
            page = await browser.new_page(viewport=view, color_scheme="dark", bypass_csp=True)  # for what is evaluated
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            await page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/?token={TOKEN}")
            await page.wait_for_function("window.shown && window.shown.drawn >= 45", timeout=200_000)
            middle = (slider.low + slider.high) / 2
            await page.fill(f"#slider-{slider.name}", f"{middle}")
            many = len(show.player.sliders)
            await page.wait_for_function(f"document.querySelectorAll('input').length === {many}")
            before = await page.evaluate("window.shown.last")
            await page.wait_for_function(f"window.shown.last > {before + 1}", timeout=100_000)
            assert show.values[slider.name] == pytest.approx(middle)
            assert await page.evaluate("document.documentElement.scrollWidth") <= view["width"]
            await page.screenshot(path=pictures / f"play-{name}.png")
            assert (pictures / f"play-{name}.png").stat().st_size < 60_000
            assert not errors
        finally:
            await browser.close()
            server.should_exit = True
            await serving
