"""``scripts/onnx-nodes [WORD …]``: cases of ONNX's node suite that pass, are refused, or differ, by engine.

    scripts/onnx-nodes --engine callboard --refusals
    scripts/onnx-nodes resize attention --json found.json
    scripts/onnx-nodes --device cuda --part 3/8 --seconds 100

A case passes if dtypes and shapes are those that the suite expects, and values lie within its tolerances. It is refused
if the engine names what it lacks. Everything else is wrong. Floats may differ by two units in the last place of the
output's largest value, which is more than the suite's tolerance for halves. Needs the package `onnx`.
"""

import argparse
import asyncio
import collections
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import callboard as cb

__all__ = ["main"]

REFUSALS = (cb.UnsupportedOp, cb.LibraryError, cb.ShapeError, cb.AccelError, NotImplementedError, TypeError)
SECONDS = 60.0
"""For one case."""
LAST_PLACES = 2
"""By how many units in the last place of an output's largest value floats may differ: where halves are rounded, and how
the expected values near 0 were rounded, is not specified."""


def cases(words: list[str]) -> list[Any]:
    """The cases whose names contain one of these words; all of them without words.

    Raises:
        SystemExit: The package `onnx` is missing.
    """
    try:
        from onnx.backend.test.loader import load_model_tests
    except ImportError:
        raise SystemExit("onnx-nodes: the suite is in the package onnx; pip install onnx") from None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return [case for case in found if not words or any(word in case.name for word in words)]


async def outcome(device: Any, case: Any, engine: str) -> tuple[str, str]:
    """``"passed"``, ``"refused"`` or ``"wrong"``, and why."""
    for inputs, expected in case.data_sets:
        try:
            plan = await device.engine.build(case.model.SerializeToString(), engine=engine, title=case.name)
            context = device.engine.context(plan)
            given = {port.name: hosted(array) for port, array in zip(plan.inputs, inputs, strict=True)}
            outs = context(given)
            found = [await ref.get() for ref in (outs if isinstance(outs, tuple) else (outs,))]
        except REFUSALS as e:
            return "refused", f"{type(e).__name__}: {e}"
        except Exception as e:  # whatever else is raised is no refusal
            return "wrong", f"{type(e).__name__}: {e}"
        if why := difference(found, expected, case.rtol, case.atol):
            return "wrong", why
    return "passed", ""


def hosted(value: Any) -> "np.ndarray[Any, Any]":
    """An input or output of the suite as an array."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def difference(found: list[Any], expected: list[Any], rtol: float, atol: float) -> str:
    """How the outputs differ from those expected; empty if they do not."""
    if len(found) != len(expected):
        return f"{len(found)} outputs for {len(expected)}"
    for at, (ours, theirs) in enumerate(zip(found, map(hosted, expected), strict=True)):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"output {at} is {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
        if theirs.dtype.kind in "fV" and theirs.size:
            place = LAST_PLACES * float(ml_dtypes.finfo(theirs.dtype).eps)  # type: ignore[no-untyped-call]
            ours, theirs = ours.astype("f8"), theirs.astype("f8")
            finite = np.abs(theirs[np.isfinite(theirs)])
            rtol, atol = max(rtol, place), max(atol, place * float(finite.max(initial=0.0)))
        if theirs.dtype.kind not in "fc" and not np.array_equal(ours, theirs):
            return f"output {at} has {np.count_nonzero(ours != theirs)} other values of {theirs.size}"
        if theirs.dtype.kind in "fc" and not np.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True):
            with np.errstate(all="ignore"):
                return f"output {at} differs by up to {np.nanmax(np.abs(ours - theirs)):.3g}"
    return ""


async def measure(chosen: list[Any], engine: str, device: str, seconds: float) -> dict[str, tuple[str, str]]:
    """The outcome of each case by its name, of as many as are done in these seconds."""
    found: dict[str, tuple[str, str]] = {}
    async with cb.device(device) as dev:
        end = time.monotonic() + seconds
        for case in chosen:
            if time.monotonic() > end:
                break
            try:
                found[case.name] = await asyncio.wait_for(outcome(dev, case, engine), SECONDS)
            except TimeoutError:
                found[case.name] = ("wrong", f"more than {SECONDS:.0f} s")
            kind, why = found[case.name]
            if kind == "wrong":
                sys.stdout.write(f"wrong  {case.name}: {why}\n")
                sys.stdout.flush()
    return found


def part_of(text: str) -> slice:
    """``"3/8"``: the third of eight parts, every eighth case from the third on.

    Raises:
        ArgumentTypeError: It is no such part.
    """
    at, _, of = text.partition("/")
    if not (at.isdigit() and of.isdigit() and 1 <= int(at) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; write it as 3/8")
    return slice(int(at) - 1, None, int(of))


def main() -> int:
    """Run the suite; 1 if a case is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only cases whose names contain one of these")
    parser.add_argument("--engine", default="callboard", choices=("callboard", "onnxruntime"))
    parser.add_argument("--device", default="cpu", help="device (%(default)s)")
    parser.add_argument("--refusals", action="store_true", help="list the refusals, most frequent first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome of each case")
    parser.add_argument("--part", type=part_of, default=slice(None), help="a part of the cases, such as 3/8")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    given = parser.parse_args()
    begin = time.perf_counter()
    chosen = cases(given.words)[given.part]
    found = asyncio.run(measure(chosen, given.engine, given.device, given.seconds))
    counts = collections.Counter(kind for kind, _ in found.values())
    if given.refusals:
        told = collections.Counter(
            why.partition(name)[2][2:160] for name, (kind, why) in found.items() if kind == "refused"
        )
        for why, count in told.most_common():
            sys.stdout.write(f"{count:4}  {why}\n")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    sys.stdout.write(
        f"{given.engine} on {given.device}: {counts['passed']} of {len(found)} pass, {counts['refused']} refused, "
        f"{counts['wrong']} wrong, {len(chosen) - len(found)} not begun, {time.perf_counter() - begin:.0f} s\n"
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
