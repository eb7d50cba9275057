"""``read_video`` and ``write_video``: files by their hashes, and FFmpeg's own filters beside the graph."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.realtime.video import effects
from callboard.realtime.video.files import read_video, write_video

av: Any = pytest.importorskip("av", reason="PyAV is not installed")


def made(count: int, *shape: int) -> list[tuple[float, Any]]:
    rng = np.random.default_rng(2)
    return [(n / 25, rng.integers(0, 256, shape, dtype=np.uint8)) for n in range(count)]


def hashes(frames: list[tuple[float, Any]]) -> list[str]:
    return [hashlib.sha256(frame.tobytes()).hexdigest() for _, frame in frames]


async def read(path: Path, **how: Any) -> list[tuple[float, Any]]:
    return [item async for item in read_video(path, **how)]


async def test_ffv1_keeps_every_number_and_the_times(tmp_path: Path) -> None:
    frames = made(4, 18, 33, 3)
    assert await write_video(tmp_path / "a.mkv", frames, fps=25) == 4
    found = await read(tmp_path / "a.mkv")
    assert hashes(found) == hashes(frames)
    np.testing.assert_allclose([pts for pts, _ in found], [0, 0.04, 0.08, 0.12], atol=1e-3)
    assert hashes(await read(tmp_path / "a.mkv", start=0.05)) == hashes(frames)[2:]
    gray = [(pts, frame[..., 0]) for pts, frame in frames]
    await write_video(tmp_path / "gray.mkv", gray)
    for (_, frame), (_, wanted) in zip(await read(tmp_path / "gray.mkv"), gray, strict=True):
        assert np.array_equal(frame[..., 1], wanted)


async def test_a_file_is_filtered_and_written_again_as_ffmpeg_filters_it(tmp_path: Path) -> None:
    await write_video(tmp_path / "in.mkv", made(4, 16, 20, 3), fps=25)
    async with cb.device("cpu", isolation=None) as gpu:
        nodes = {
            "soft": effects.filtered(np.full((3, 3), 1 / 9), "input"),
            "far": effects.merge("soft", "input", "max"),
        }
        graph = cb.VideoEffectsGraph(gpu, nodes)

        async def shown() -> AsyncIterator[Any]:
            async for frame in graph.run(read_video(tmp_path / "in.mkv")):
                yield frame

        assert await write_video(tmp_path / "out.mkv", shown()) == 4
    ours = await read(tmp_path / "out.mkv")
    theirs = ffmpeg(tmp_path / "in.mkv")
    for (_, frame), wanted in zip(ours, theirs, strict=True):
        inside = slice(1, -1), slice(1, -1)
        assert np.abs(frame[inside].astype(int) - wanted[inside].astype(int)).max() <= 1  # FFmpeg rounds halves up


def ffmpeg(path: Path) -> list[Any]:
    """The same by a graph of FFmpeg's filters."""
    found = []
    with av.open(str(path)) as container:
        graph = av.filter.Graph()
        source = graph.add_buffer(template=container.streams.video[0])
        split = graph.add("split")
        chosen = graph.add("format", "gbrp")
        soft = graph.add("convolution", ":".join([" ".join("1" * 9)] * 4))
        joined, sink = graph.add("blend", "all_mode=lighten"), graph.add("buffersink")
        source.link_to(chosen)
        chosen.link_to(split)
        split.link_to(soft, 0, 0)
        soft.link_to(joined, 0, 0)
        split.link_to(joined, 1, 1)
        joined.link_to(sink)
        graph.configure()
        for frame in container.decode(video=0):
            graph.push(frame)
            found.append(graph.pull().to_ndarray(format="rgb24"))
    return found


async def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    frames = made(2, 6, 8, 3)
    wrong: list[tuple[str, Any, str]] = [
        ("a.mkv", [frames[0], (0.1, frames[1][1][:4])], r"frame 1 has shape \[4, 8, 3\]"),
        ("b.mkv", [frames[0], frames[0]], "not after the one before"),
        ("c.mkv", [(0.0, frames[0][1].astype("f4"))], "dtype float32"),
        ("d.mp4", [(0.0, frames[0][1][:5])], "even extents"),
        ("e.txt", frames, r"use one of the endings .avi, .mkv"),
    ]
    for name, given, message in wrong:
        with pytest.raises((cb.ShapeError, TypeError, ValueError), match=message):
            await write_video(tmp_path / name, given)
    with pytest.raises(FileNotFoundError):
        await read(tmp_path / "none.mkv")
    (tmp_path / "text.mkv").write_text("no video")
    with pytest.raises(ValueError, match=r"text\.mkv"):
        await read(tmp_path / "text.mkv")
