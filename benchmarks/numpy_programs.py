"""Four whole programs on a device beside NumPy on the CPU: a stencil, PCA with k-means, an STFT, a training loop.

    python benchmarks/numpy_programs.py --device cpu --json numpy_programs.json
    python benchmarks/numpy_programs.py --quick --device cpu

The texts are the same for both: NumPy follows the array API standard, as ``dev.xp`` does; training uses ``dev.dnn`` on
the device. Steps that repeat are recorded there, as the guide of recordings says. The bar on the CPU is 1.2 times
NumPy's time, and 1.0 for the stencil, which is fused. Beside CuPy on a GPU there is no subject yet.
"""

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, kind_of, ratios, table, tell_bars

import callboard as cb
from callboard.cli.demo.digits import load_digits

LIMIT, FUSED = 1.2, 1.0
FEED, KILL = 0.055, 0.062
FRAME, HOP, RATE = 512, 256, 16_000
HIDDEN, CLASSES, STEP = 64, 10, 0.1


def reaction(xp: Any, u: Any, v: Any) -> tuple[Any, Any]:
    around = [sum(xp.roll(x, n, axis=axis) for n in (1, -1) for axis in (0, 1)) for x in (u, v)]
    rate = u * v * v
    return (
        u + 0.16 * (around[0] - 4 * u) - rate + FEED * (1 - u),
        v + 0.08 * (around[1] - 4 * v) + rate - (FEED + KILL) * v,
    )


def gray_scott(xp: Any, given: Any, quick: bool) -> Any:
    u, v = given
    for _ in range(3 if quick else 30):
        u, v = reaction(xp, u, v)
    return v


def gray_scott_on(gpu: Any, given: Any, quick: bool) -> Callable[[], Any]:
    """The same, with the step recorded once: a run is one message."""
    u, v = (gpu.put(one) for one in given)
    with gpu.record(u=u, v=v) as step:
        u[...], v[...] = reaction(gpu.xp, u, v)
        step.returns(v)
    return lambda: step.replay(3 if quick else 30, u=given[0], v=given[1]).get()


def main_axes(xp: Any, x: Any) -> Any:
    x = x - xp.mean(x, axis=0)
    _, _, axes = xp.linalg.svd(x, full_matrices=False)
    return x @ axes[:8, :].T


def moved(xp: Any, points: Any, centres: Any, numbers: Any) -> Any:
    far = xp.sum(points**2, axis=1)[:, None] - 2 * (points @ centres.T) + xp.sum(centres**2, axis=1)
    member = xp.astype(xp.argmin(far, axis=1)[:, None] == numbers, xp.float32)
    return (member.T @ points) / xp.sum(member, axis=0)[:, None]


def clusters(xp: Any, given: Any, quick: bool) -> Any:
    points = main_axes(xp, given[0])
    centres, numbers = points[:CLASSES, :], xp.arange(CLASSES)
    for _ in range(2 if quick else 20):
        centres = moved(xp, points, centres, numbers)
    return centres


def clusters_on(gpu: Any, given: Any, quick: bool) -> Callable[[], Any]:
    """The same, with the step of k-means recorded."""
    xp, x = gpu.xp, gpu.put(given[0])
    points, numbers = main_axes(xp, x), xp.arange(CLASSES)
    centres = gpu.copy(points[:CLASSES, :])
    with gpu.record(points=points, centres=centres) as step:
        centres[...] = moved(xp, points, centres, numbers)
        step.returns(centres)

    def run() -> Any:
        there = main_axes(xp, x)
        return step.replay(2 if quick else 20, points=there, centres=gpu.copy(there[:CLASSES, :])).get()

    return run


def stft(xp: Any, given: Any, quick: bool) -> Any:
    sound, window = given
    parts = xp.reshape(sound, (-1, HOP))
    spectrum = xp.fft.rfft(xp.concat([parts[:-1, :], parts[1:, :]], axis=1) * window)
    return xp.log(xp.real(spectrum) ** 2 + xp.imag(spectrum) ** 2 + 1e-6)


def trained(xp: Any, given: Any, quick: bool) -> Any:
    x, wanted, first, second = given
    for _ in range(2 if quick else 20):
        hidden = xp.maximum(x @ first, 0)
        said = hidden @ second
        powers = xp.exp(said - xp.max(said, axis=1, keepdims=True))
        error = (powers / xp.sum(powers, axis=1, keepdims=True) - wanted) / len(x)
        below = (error @ second.T) * (hidden > 0)
        first, second = first - STEP * (x.T @ below), second - STEP * (hidden.T @ error)
    return second


def trained_on(gpu: Any, given: Any, quick: bool) -> Callable[[], Any]:
    """The same by ``dev.dnn``, recorded: one step of training."""
    x, wanted, first, second = (gpu.put(one) for one in given)
    dnn = gpu.dnn

    def step() -> None:
        nonlocal first, second
        hidden = dnn.activation(x @ first, "relu")
        error = (dnn.softmax(hidden @ second) - wanted) / len(x)
        below = dnn.activation_backward(error @ second.T, hidden, "relu")
        first -= STEP * (x.T @ below)
        second -= STEP * (hidden.T @ error)

    with gpu.record(first=first, second=second) as recorded:
        step()
        recorded.returns(second)
    return lambda: recorded.replay(2 if quick else 20, first=given[2], second=given[3]).get()


def stft_on(gpu: Any, given: Any, quick: bool) -> Callable[[], Any]:
    there = tuple(gpu.put(one) for one in given)
    return lambda: stft(gpu.xp, there, quick).get()


def inputs(quick: bool) -> dict[str, tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(1)
    side, seconds = (64, 1) if quick else (256, 60)
    u, v = np.ones((side, side), "f4"), np.zeros((side, side), "f4")
    u[20:40, 20:40], v[20:40, 20:40] = 0.5, 0.25
    digits = load_digits()
    x, wanted = digits.images.astype("f4") / 16, np.eye(CLASSES, dtype="f4")[digits.labels]
    length = seconds * RATE // HOP * HOP
    sound = np.sin(np.arange(length) ** 1.4 / 50).astype("f4")
    weights = [rng.normal(0, 0.15, shape).astype("f4") for shape in ((64, HIDDEN), (HIDDEN, CLASSES))]
    return {
        f"Gray-Scott {side}²": (u, v),
        "PCA and k-means, digits": (x,),
        f"STFT of {seconds} s": (sound, np.hanning(FRAME).astype("f4")),
        "training, digits": (x, wanted, *weights),
    }


def seconds_of(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    args = arguments(__doc__, 7)
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    with cb.sync.device(args.device) as gpu:
        programs = [
            (gray_scott_on, gray_scott),
            (clusters_on, clusters),
            (stft_on, stft),
            (trained_on, trained),
        ]
        for (name, given), (ours, theirs) in zip(inputs(args.quick).items(), programs, strict=True):
            on_device = ours(gpu, given, args.quick)

            def on_numpy(run: Any = theirs, given: Any = given) -> Any:
                return run(np, given, args.quick)

            found, wanted = on_device(), on_numpy()
            assert np.allclose(np.abs(found), np.abs(wanted), rtol=1e-2, atol=1e-3), name
            for _ in range(0 if args.quick else 5):  # until the device has compiled what comes often
                on_device()
            subjects = {
                "callboard": functools.partial(seconds_of, on_device),
                "numpy": functools.partial(seconds_of, on_numpy),
            }
            figures = interleave(subjects, args.rounds, name)
            results[name] = table(name, figures, lambda s: f"{s * 1e3:.2f} ms", "numpy")
            ratio = ratios(figures, "callboard", "numpy")
            if kind_of(args.device) == "cpu" and ratio is not None and not args.quick:
                limit = FUSED if ours is gray_scott_on else LIMIT
                bars.append(Bar(f"{name}, of NumPy's time", ratio["median"], limit, at_least=False))
    told = tell_bars(bars)
    if args.json:
        args.json.write_text(json.dumps({"figures": results, "bars": told}, indent=1))


if __name__ == "__main__":
    main()
