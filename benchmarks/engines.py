"""An ONNX model by the engines of `dev.engine`, beside each other in one run.

    python benchmarks/engines.py --json engines.json
    python benchmarks/engines.py --quick
    python benchmarks/engines.py --device cuda --dtype f16 --shapes 32x128
    python benchmarks/engines.py --model model.onnx --inputs inputs.npz

They are ONNX Runtime, callboard's own op by op, and its recordings. Without a model it is MiniLM of plain operators
(`_plain_minilm.py`), on texts of one length in a batch, beside MiniLM written in callboard's ops and recorded ("by
hand"), and on CUDA beside torch's encoder layers. `raw` is ONNX Runtime's session without callboard; on CUDA its inputs
and outputs are bound on the device, `graph` is its own CUDA graph, and `fused` is MiniLM in its own fused operators.
`layer` is one product of 64 by 64, for what a call costs.

Subjects take turns. Each is called once and its result read, or several times, and the last result read: then the
calls follow each other on the device, and the time of one is that of its work.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _checkpoint import checkpoint
from _engine_runtime import by_binding, by_fused, with_cuda
from _engine_subjects import LAYER, Subject, by_context, by_hand, by_session, by_torch, layer_by_hand, session
from _harness import Bar, Figures, arguments, kind_of, ratios, table, tell_bars
from _plain_minilm import plain_minilm
from _record import Record

import callboard as cb

SHAPES = {"cpu": "1x16,8x64", "cuda": "1x16,8x64,32x128"}
"""Texts and tokens of the calls."""
HAND, RECORDED = "by hand", "callboard, recorded"


def inputs(given: Any, backend: str) -> dict[str, dict[str, Any]]:
    """The inputs of a call, by its title."""
    if given.inputs:
        return {given.inputs.stem: dict(np.load(given.inputs))}
    rng = np.random.default_rng(0)
    found = {}
    for shape in (given.shapes or SHAPES[backend]).split(","):
        n, m = map(int, shape.split("x"))
        for what, padded in (("", False), (", padded", True)):
            mask = np.ones((n, m), np.int64)
            if padded:
                mask[-1, m // 2 :] = 0
            found[f"{n} x {m}{what}"] = {"ids": rng.integers(1000, 30000, (n, m)), "mask": mask}
    return dict(list(found.items())[:2]) if given.quick else found


async def subjects(
    given: Any, device: Any, data: bytes, folder: Path | None, opened: Any, call: dict[str, Any]
) -> dict[str, Subject]:
    """What is measured, by name."""
    on_cpu = kind_of(given.device) == "cpu"
    refs = {name: device.put(array) for name, array in call.items()}
    own = await device.engine.build(data, engine="callboard")
    found = {
        "callboard": by_context(device.engine.context(own), refs),
        RECORDED: by_context(device.engine.context(own, record=device.record), refs),
    }
    if not on_cpu and given.dtype == "f32":
        plan = await device.engine.build(data, engine="callboard", precision="tf32")
        found[f"{RECORDED}, TF32"] = by_context(device.engine.context(plan, record=device.record), refs)
    if on_cpu:
        with contextlib.suppress(cb.AccelError):  # it refuses some operators in bf16
            plan = await device.engine.build(data, engine="onnxruntime")
            found["onnxruntime"] = by_context(device.engine.context(plan), refs)
            found["raw"] = by_session(opened, call)
    elif with_cuda():
        found |= await by_runtime(given, device, data, folder, call, refs)
    if "x" in call and folder is not None:
        found[HAND] = await layer_by_hand(device, call)
    elif folder is not None:
        found[HAND] = await by_hand(device, folder, given.dtype, call)
        if not on_cpu and importlib.util.find_spec("torch") is not None:
            found["torch"] = by_torch(folder, given.dtype, call, False)
            if given.compiled:
                found["torch.compile"] = by_torch(folder, given.dtype, call, True)
    return found


async def by_runtime(
    given: Any, device: Any, data: bytes, folder: Path | None, call: dict[str, Any], refs: dict[str, Any]
) -> dict[str, Subject]:
    """ONNX Runtime on CUDA, through callboard and without it; in f32 also with TF32, its own default."""
    found = {}
    for tf32 in (False, True) if given.dtype == "f32" else (False,):
        end = ", TF32" if tf32 else ""
        plan = await device.engine.build(data, engine="onnxruntime", precision="tf32" if tf32 else "f32")
        print(plan.explain())
        found[f"onnxruntime{end}"] = by_context(device.engine.context(plan), refs)
        for graph in (False, True):
            name = f"{', graph' if graph else ''}{end}"
            makers = {f"raw{name}": partial(by_binding, data, call)}
            if folder is not None and "ids" in call and given.dtype != "bf16":
                makers[f"raw, fused{name}"] = partial(by_fused, folder, given.dtype, call)
            for what, make in makers.items():
                try:
                    found[what] = make(graph=graph, tf32=tf32)
                except Exception as e:  # ONNX Runtime's own errors have no common base
                    print(f"{what}: not measured: {e!s:.300}")
    return found


async def measure(
    given: Any, device: Any, data: bytes, folder: Path | None, opened: Any, call: dict[str, Any]
) -> tuple[dict[int, Figures], dict[str, float]]:
    """Seconds of a call for each round, by how many follow each other; and the differences to ONNX Runtime's result."""
    ran = await subjects(given, device, data, folder, opened, call)
    expected = opened.run(None, call)[0]
    apart = {}
    for name, each in ran.items():
        for _ in range(3):  # it compiles and records
            each.step()
            y = await each.result()
        apart[name] = float(np.abs(y - expected).max() / np.abs(expected).max())
    found: dict[int, Figures] = {many: {name: [] for name in ran} for many in (1, given.calls)}
    for turn in range(given.rounds):
        for many, figures in found.items():
            repeats = given.calls if many == 1 else 1
            for name in ran if turn % 2 else reversed(ran):
                began = time.perf_counter()
                for _ in range(repeats):
                    for _ in range(many):
                        ran[name].step()
                    await ran[name].result()
                figures[name].append((time.perf_counter() - began) / repeats / many)
    return found, apart


async def run(given: Any, record: Record, folder: Path | None) -> list[Bar]:
    """Measure each call, print and store it."""
    data = given.model.read_bytes() if folder is None else plain_minilm(folder, given.dtype)
    opened = session(data if folder is None else plain_minilm(folder))
    work = [(data, opened, title, call) for title, call in inputs(given, kind_of(given.device)).items()]
    if folder is not None:
        x = np.random.default_rng(1).standard_normal((16, 64)).astype("f4")
        work.insert(0, (LAYER, session(LAYER), "layer", {"x": x}))
    bars = []
    async with cb.device(given.device, isolation="process") as device:
        for data, opened, title, call in work:
            found, apart = await measure(given, device, data, folder, opened, call)
            for many, figures in found.items():
                shown = title if many == 1 else f"{title}, {many} calls"
                baseline = "raw" if "raw" in figures else HAND if HAND in figures else "callboard"
                record[shown] = table(shown, figures, lambda x: f"{x * 1e3:.3f} ms", baseline)
            record[f"{title}, difference"] = apart
            print("relative to ONNX Runtime: " + ", ".join(f"{name} {x:.1e}" for name, x in apart.items()))
            bars += bars_of(title, found[1], found[given.calls])
    return bars


def bars_of(title: str, one: Figures, many: Figures) -> list[Bar]:
    """What the figures of a call must reach."""
    if title == "layer" and "raw" not in many:
        return [_more(title, many, RECORDED, HAND)]
    if title == "layer":
        return [_more(title, many, "onnxruntime", "raw")]
    found = [Bar(f"{title}: callboard to recorded", _median(one, "callboard", RECORDED), 1.0, at_least=True)]
    for name, limit in ((HAND, 1.0), ("torch.compile", 1.5), ("torch", 1.5)):
        if name in many:
            found.append(Bar(f"{title}: {name} to recorded", _median(many, name, RECORDED), limit, at_least=True))
    for end in ("", ", TF32"):
        theirs = [name for name in many if name.startswith("raw") and name.endswith(", TF32") == bool(end)]
        if len(theirs) > 1:  # on CUDA, where the fastest of them counts
            best = min(theirs, key=lambda name: min(many[name]))
            limit = 1.5 if HAND in many else 1.0
            ratio = _median(many, best, RECORDED + end)
            found.append(Bar(f"{title}: {best} to {RECORDED}{end}", ratio, limit, at_least=True))
    if "raw" in many:
        raw = min(many["raw"])
        if raw > 100e-6:
            found.append(Bar(f"{title}: raw to onnxruntime", _median(many, "raw", "onnxruntime"), 0.97, at_least=True))
        else:
            found.append(_more(title, many, "onnxruntime", "raw"))
    return found


def _more(title: str, found: Figures, of: str, to: str) -> Bar:
    """What a call of ``of`` takes more than one of ``to``, which is short."""
    more = (min(found[of]) - min(found[to])) * 1e6
    return Bar(f"{title}: {of}, µs more than {to}", more, 15.0, at_least=False)


def _median(found: Figures, of: str, to: str) -> float | None:
    ratio = ratios(found, of, to)
    return None if ratio is None else ratio["median"]


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=20, help="of each round (default 20)")
    parser.add_argument("--model", type=Path, help="an ONNX file")
    parser.add_argument("--inputs", type=Path, help="its inputs by name, as numpy.savez writes them")
    parser.add_argument("--shapes", help="texts and tokens of MiniLM's calls: 1x16,8x64")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True, help="torch.compile, too")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32", help="of MiniLM's layers")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    if given.quick:
        given.calls = min(given.calls, 3)
    record = Record("engines", given)
    with tempfile.TemporaryDirectory() as spare:
        folder, weights = (None, given.model.name) if given.model else checkpoint(Path(spare))
        record["model"] = {"weights": weights, "dtype": given.dtype}
        bars = asyncio.run(run(given, record, folder))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
