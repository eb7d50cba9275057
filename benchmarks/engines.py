"""An ONNX model by the engines of `dev.engine`, beside each other in one run.

    python benchmarks/engines.py --json engines.json
    python benchmarks/engines.py --quick
    python benchmarks/engines.py --model model.onnx --inputs inputs.npz

They are ONNX Runtime, callboard's own op by op, and its recordings. Without a model it is MiniLM of plain operators
(`_plain_minilm.py`), on texts of one length in a batch. Engines take turns after each call; every call is awaited.
`raw` is ONNX Runtime's session without callboard, on the CPU only.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _checkpoint import checkpoint
from _harness import Bar, Figures, arguments, kind_of, ratios, table, tell_bars
from _plain_minilm import plain_minilm
from _record import Record

import callboard as cb

SHAPES = ((1, 16), (8, 64))
"""Texts and tokens of a call."""


def inputs(given: Any) -> dict[str, dict[str, Any]]:
    """The inputs of a call, by its title."""
    if given.inputs:
        return {given.inputs.stem: dict(np.load(given.inputs))}
    rng = np.random.default_rng(0)
    found = {}
    for n, m in SHAPES:
        mask = np.ones((n, m), np.int64)
        mask[-1, m // 2 :] = 0
        found[f"{n} x {m}"] = {"ids": rng.integers(1000, 30000, (n, m)), "mask": mask}
    return found


def raw_session(data: bytes) -> Any:
    """ONNX Runtime as `dev.engine` opens it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


async def measure(given: Any, data: bytes, call: dict[str, Any]) -> tuple[Figures, dict[str, float]]:
    """Seconds of a call for each round, and the largest difference to ONNX Runtime's result."""
    calls = 3 if given.quick else given.calls
    on_cpu = kind_of(given.device) == "cpu"
    async with cb.device(given.device, isolation="process") as device:
        own = await device.engine.build(data, engine="callboard")
        contexts = {
            "callboard": device.engine.context(own),
            "callboard, recorded": device.engine.context(own, record=device.record),
        }
        if on_cpu:
            contexts["onnxruntime"] = device.engine.context(await device.engine.build(data, engine="onnxruntime"))
        session = raw_session(data)
        expected = session.run(None, call)[0]
        found: Figures = {name: [] for name in (*contexts, *(["raw"] if on_cpu else []))}
        refs = {name: device.put(array) for name, array in call.items()}
        apart = {}
        for turn in range(given.rounds + 1):
            seconds = dict.fromkeys(found, 0.0)
            for at in range(calls):
                for name in found if at % 2 else reversed(found):
                    began = time.perf_counter()
                    if name == "raw":
                        session.run(None, call)
                    else:
                        outs = contexts[name](refs)
                        first = outs[0] if isinstance(outs, tuple) else outs
                        await first
                        y = await first.get()
                        apart[name] = float(np.abs(y - expected).max() / np.abs(expected).max())
                    seconds[name] += time.perf_counter() - began
            for name in found:
                if turn:  # the first round compiles and records
                    found[name].append(seconds[name] / calls)
    return found, apart


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=20, help="of each round (default 20)")
    parser.add_argument("--model", type=Path, help="an ONNX file")
    parser.add_argument("--inputs", type=Path, help="its inputs by name, as numpy.savez writes them")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    record = Record("engines", given)
    with tempfile.TemporaryDirectory() as spare:
        folder, weights = (None, "") if given.model else checkpoint(Path(spare))
        data = given.model.read_bytes() if folder is None else plain_minilm(folder)
    record["model"] = {"weights": weights or given.model.name}
    bars = []
    for title, call in inputs(given).items():
        found, apart = asyncio.run(measure(given, data, call))
        baseline = "onnxruntime" if "onnxruntime" in found else "callboard"
        record[title] = table(title, found, lambda x: f"{x * 1e3:.2f} ms", baseline)
        record[f"{title}, difference"] = apart
        print(f"relative to ONNX Runtime's results: {apart}")
        bars.append(Bar(f"{title}: callboard to recorded", _gain(found), 1.0, at_least=True))
    record.done(tell_bars(bars))


def _gain(found: Figures) -> float | None:
    return ratios(found, "callboard", "callboard, recorded")["median"]


if __name__ == "__main__":
    main()
