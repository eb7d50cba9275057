"""Six statistics of a frame with one read of it, beside one pass, and beside libraries that read it for each."""

from typing import Any

import numpy as np

import callboard as cb
from _sims.bench import Bench, Section, faster

PER = 20


def section(bench: Bench) -> Section:
    """Grey u8 of 1080 rows on a CPU, of 16384 on a GPU, where a smaller one would stay in its cache."""
    rows = bench.side(1080, 16_384)
    frame = np.random.default_rng(0).integers(0, 256, (rows, rows * (1 if bench.cuda else 16) // 9), dtype="u1")
    gpu = bench.gpu
    sent = bench.done(lambda: gpu.put(frame))
    six = cb.MultiPassAnalysisActor(gpu, {"all": cb.frame_statistics()})
    one = cb.MultiPassAnalysisActor(gpu, {"sum": lambda gpu, frame: gpu.xp.sum(frame)})
    subjects = {
        "callboard": bench.wait(lambda: six.analyze(frame)),
        "on the device": bench.wait(lambda: six.analyze(sent)),
        "one pass, on the device": bench.wait(lambda: one.analyze(sent)),
        "copy": bench.copied(frame.nbytes, PER if bench.cuda else 1),
        "NumPy": bench.call(lambda: _by_numpy(frame)),
    }
    subjects |= _by_cupy(bench, frame) if bench.cuda else _by_images(bench, frame)
    if torch := bench.peer("torch"):
        subjects["torch"] = _by_torch(bench, torch, frame)

    def bars(found: Any) -> list[Any]:
        limits = [faster(found, "one pass, on the device", "on the device", 1 / 2.5)]
        return [*limits, faster(found, "copy", "on the device", 0.8)] if bench.cuda else limits

    return Section(f"six statistics, u8, {rows} rows", subjects, "on the device", bars, {})


def _by_numpy(frame: Any) -> Any:
    return frame.min(), frame.max(), frame.sum(), frame.mean(), frame.std(), np.bincount(frame.reshape(-1))


def _by_images(bench: Bench, frame: Any) -> dict[str, Any]:
    found = {}
    if cv2 := bench.peer("cv2"):
        cv2.setNumThreads(1)
        found["OpenCV"] = bench.call(
            lambda: (
                cv2.minMaxLoc(frame),
                cv2.sumElems(frame),
                cv2.meanStdDev(frame),
                cv2.calcHist([frame], [0], None, [256], [0, 256]),
            )
        )
    if exposure := bench.peer("skimage.exposure"):
        found["scikit-image"] = bench.call(
            lambda: (exposure.histogram(frame), frame.min(), frame.max(), frame.sum(), frame.mean(), frame.std())
        )
    return found


def _by_cupy(bench: Bench, frame: Any) -> dict[str, Any]:
    cupy = bench.peer("cupy")
    if cupy is None:
        return {}
    a = cupy.asarray(frame)

    def run() -> Any:
        return a.min(), a.max(), a.sum(), a.mean(), a.std(), cupy.bincount(a.reshape(-1), minlength=256)

    return {"CuPy": bench.launch(cupy, run, PER)}


def _by_torch(bench: Bench, torch: Any, frame: Any) -> Any:
    a = torch.from_numpy(frame).to(bench.torch_device)

    def run() -> Any:
        floats = a.float()
        return *torch.aminmax(a), floats.sum(), *torch.std_mean(floats), torch.bincount(a.reshape(-1), minlength=256)

    return bench.launch(torch, run, PER if bench.cuda else 1)
