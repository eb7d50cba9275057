"""A filter of an RGB frame beside OpenCV; on a GPU beside torch, CuPy and a copy."""

from typing import Any

import numpy as np

import callboard as cb
from _sims.bench import Bench, Section, faster

FRAMES = 20
OF, COPIES = f"of {FRAMES}", f"copies of {FRAMES}"
"""Filters of a recording, and copies."""


def section(bench: Bench) -> Section:
    """5 by 5 at 1080p on a CPU, 3 by 3 at 4K on a GPU."""
    rows = bench.side(1080, 2160)
    line = np.array([1, 2, 1] if bench.cuda else [1, 4, 6, 4, 1], "f4")
    weights = np.outer(line, line) / line.sum() ** 2
    image = np.random.default_rng(0).integers(0, 256, (rows, rows * 16 // 9, 3), dtype="u1")
    pipe = cb.ImageFilterPipeline(bench.gpu, weights, border="mirror")
    sent = bench.done(lambda: bench.gpu.put(image))
    per = 50 if bench.cuda else 1
    subjects = {
        "callboard": bench.wait(lambda: pipe.process(image)),
        "on the device": bench.enqueue(lambda: pipe.process_gpu(sent), per),
        "copy": bench.copied(2 * image.nbytes, per),
    }
    if bench.cuda:  # without what a message takes for each
        subjects[OF] = bench.recorded(lambda: pipe.process_gpu(sent), FRAMES)
        subjects[COPIES] = bench.recorded(lambda: bench.gpu.copy(sent), FRAMES)
    if not bench.cuda and (cv2 := bench.peer("cv2")):
        cv2.setNumThreads(1)
        subjects["OpenCV"] = bench.call(lambda: cv2.filter2D(image, -1, weights.astype("f4")))
    if torch := bench.peer("torch"):
        subjects["torch"] = _torch(bench, torch, image, weights, per)
    if cupy := bench.peer("cupy"):
        correlate = bench.peer("cupyx.scipy.ndimage").correlate
        a, w = cupy.asarray(image), cupy.asarray(weights[..., None].astype("f4"))
        subjects["CuPy"] = bench.launch(cupy, lambda: correlate(a, w, mode="mirror"), per)

    def bars(found: Any) -> list[Any]:
        if not bench.cuda:
            return [faster(found, "OpenCV", "callboard", 0.9)]
        return [faster(found, COPIES, OF, 0.7), faster(found, "torch", OF, 5)]

    size, ours = f"{len(weights)} x {len(weights)}", OF if bench.cuda else "on the device"
    return Section(f"{size}, RGB, {rows} rows, a frame", subjects, ours, bars, facts={})


def _torch(bench: Bench, torch: Any, image: Any, weights: Any, per: int) -> Any:
    """A depthwise convolution, channels last, in floats, as torch has no other."""
    where = bench.torch_device
    frame = torch.from_numpy(image).to(where).permute(2, 0, 1)[None].float()
    frame = frame.contiguous(memory_format=torch.channels_last)
    kernel = torch.from_numpy(weights.astype("f4")).to(where).expand(3, 1, *weights.shape)
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    radius = len(weights) // 2

    def run() -> Any:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(frame, kernel, padding=radius, groups=3)

    return bench.launch(torch, run, per)
