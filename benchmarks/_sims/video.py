"""A chain of five effects beside OpenCV by hand and FFmpeg's filters; ten effects of a 4K frame on a GPU."""

import itertools
import statistics
import time
from typing import Any

import numpy as np
from _harness import Bar

import callboard as cb
from _sims.bench import Bench, Section, faster
from callboard.realtime.video import effects


def section(bench: Bench) -> Section:
    """1080p on a CPU, 4K on a GPU."""
    rows = bench.side(1080, 2160)
    frame = np.random.default_rng(0).integers(0, 256, (rows, rows * 16 // 9, 3), dtype="u1")
    chain = [
        effects.blur(5),
        effects.edge(),
        effects.threshold(40),
        effects.blur(3),
        effects.filtered(np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])),
    ]
    branches = {
        "soft": effects.blur(9, "input"),
        "lines": effects.edge("input"),
        "grey": effects.grayscale("input"),
        "wide": effects.blur(15, "input"),
        "glow": effects.blend("soft", "wide", 0.5),
        "drawn": effects.merge("lines", "grey", "max"),
        "both": effects.merge("glow", "drawn", "difference"),
        "hard": effects.threshold(30, 255, "both"),
        "mixed": effects.blend("hard", "soft", 0.2),
        "trail": effects.trail(3, "mixed"),
    }
    five = cb.VideoEffectsGraph(bench.gpu, chain, measure_every=1_000_000)
    ten = cb.VideoEffectsGraph(bench.gpu, branches, measure_every=1_000_000)
    subjects = {
        "callboard": bench.wait(lambda: five.process_frame(frame)),
        "ten effects": bench.wait(lambda: ten.process_frame(frame)),
    }
    if not bench.cuda and (cv2 := bench.peer("cv2")):
        subjects["OpenCV by hand"] = bench.call(lambda: _by_hand(cv2, frame))
    if not bench.cuda and (av := bench.peer("av")):
        subjects["FFmpeg's filters"] = bench.call(_by_ffmpeg(av, frame))
    facts = {"ten effects, p99, s": _slowest(bench, ten, frame)}

    def bars(found: Any) -> list[Any]:
        if bench.cuda:
            return [Bar("ten effects: p99, s", facts["ten effects, p99, s"], 16.6e-3, at_least=False)]
        return [faster(found, "OpenCV by hand", "callboard", 0.9), faster(found, "FFmpeg's filters", "callboard", 0.9)]

    return Section(f"five effects, RGB, {rows} rows, a frame", subjects, "callboard", bars, facts)


def _slowest(bench: Bench, graph: Any, frame: Any) -> float:
    """The time that one of a hundred frames takes, or more, once there are past frames and all is compiled."""

    async def run() -> list[float]:
        for _ in range(5):
            await graph.process_frame(frame)
        times, end = list[float](), time.perf_counter() + 8 * bench.seconds
        while len(times) < 5 or (len(times) < 600 and time.perf_counter() < end):
            start = time.perf_counter()
            await graph.process_frame(frame)
            times.append(time.perf_counter() - start)
        return times

    return statistics.quantiles(bench.runner.run(run()), n=100)[98]


def _by_hand(cv2: Any, frame: Any) -> Any:
    """The chain as calls of OpenCV's functions, one after the other, on one thread."""
    cv2.setNumThreads(1)
    soft = cv2.GaussianBlur(frame, (5, 5), 0)
    grey = cv2.cvtColor(soft, cv2.COLOR_RGB2GRAY)
    slope = cv2.magnitude(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1))
    lines = cv2.cvtColor(cv2.convertScaleAbs(slope), cv2.COLOR_GRAY2RGB)
    hard = cv2.threshold(lines, 40, 255, cv2.THRESH_BINARY)[1]
    return cv2.filter2D(cv2.GaussianBlur(hard, (3, 3), 0), -1, np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], "f4"))


def _by_ffmpeg(av: Any, frame: Any) -> Any:
    """The chain as filters of FFmpeg, on one thread; its Sobel filter takes each colour on its own."""
    graph = av.filter.Graph()
    graph.threads = 1
    height, width = frame.shape[:2]
    nodes = [graph.add_buffer(width=width, height=height, format="gbrp", time_base="1/30")]
    nodes += [
        graph.add("gblur", "sigma=1.1:steps=1"),
        graph.add("sobel"),
        graph.add("lutrgb", "r='if(gt(val,40),255,0)':g='if(gt(val,40),255,0)':b='if(gt(val,40),255,0)'"),
        graph.add("gblur", "sigma=0.8:steps=1"),
        graph.add("convolution", ":".join(["0 -1 0 -1 5 -1 0 -1 0"] * 3)),
        graph.add("buffersink"),
    ]
    for one, other in itertools.pairwise(nodes):
        one.link_to(other)
    graph.configure()
    sent = av.VideoFrame.from_ndarray(frame, format="rgb24").reformat(format="gbrp")

    def run() -> Any:
        graph.push(sent)
        return graph.pull()

    return run
