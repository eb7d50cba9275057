"""``callboard engine``: build a plan of an ONNX model, describe one, measure it."""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.kernel.engine.files.outside import regular_bytes, with_contents
from callboard.kernel.engine.precision.config import CALIBRATORS, PRECISIONS

__all__ = ["add_engine"]


def add_engine(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "engine",
        help="build, describe and measure plans of ONNX models",
        description="Builds a plan of an ONNX model on a device, says which engine executes it and what it takes, and "
        "measures executions. See docs/guides/engines.md.",
    )
    parser.set_defaults(run=lambda _: parser.print_help())
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    for name, help_text in (
        ("build", "write a plan of a model"),
        ("inspect", "describe a model or a plan"),
        ("bench", "measure executions of a model or a plan"),
    ):
        action = actions.add_parser(name, help=help_text, description=help_text.capitalize() + ".")
        action.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file, or a plan")
        action.add_argument("--device", default="cpu", help="device (%(default)s)")
        engines = ("onnxruntime", "callboard", *(("tensorrt",) if name == "build" else ()))
        action.add_argument("--engine", choices=engines, help="engine; the device's default")
        action.add_argument(
            "--profile",
            action="append",
            default=[],
            metavar="NAME=LEAST:USUAL:MOST",
            help="shapes of an input with dynamic extents: x=1x3:8x3:64x3",
        )
        if name == "build":
            action.add_argument("-o", "--output", type=Path, metavar="FILE", help="the plan (MODEL with .plan)")
            action.add_argument("--target", default="CURRENT", help="of TensorRT: SM75, SM89, ...; %(default)s")
            action.add_argument("--refit", action="store_true", help="weights can be replaced")
            action.add_argument(
                "--precision", choices=PRECISIONS[1:], help="of convolutions and products; needs --calibration"
            )
            action.add_argument(
                "--calibration", type=Path, nargs="+", metavar="FILE", help="inputs by name, as numpy.savez writes them"
            )
            action.add_argument("--calibrator", choices=CALIBRATORS, default="minmax", help="ranges (%(default)s)")
        if name == "bench":
            action.add_argument("-n", "--calls", type=int, default=100, help="executions (%(default)s)")
        action.set_defaults(run=run, action=name)


def run(arguments: argparse.Namespace) -> int:
    """Run an action; the exit code."""
    from callboard.core.errors import AccelError

    try:
        return asyncio.run(_run(arguments))
    except (AccelError, OSError, TypeError, ValueError) as e:
        print(f"callboard engine: {e}", file=sys.stderr)
        return 2


async def _run(arguments: argparse.Namespace) -> int:
    import callboard as cb

    data = await asyncio.to_thread(_read, arguments.model)
    if data.startswith(b"CBENGINE"):
        _check_plan(arguments)
    async with cb.device(arguments.device) as device:
        if getattr(arguments, "precision", None):
            data = await _lowered(device, data, arguments)
        if arguments.engine == "tensorrt":
            await _built_by_tensorrt(data, arguments)
            return 0
        if data.startswith(b"CBENGINE"):
            plan = await device.engine.load(data, fallback=True)
        else:
            plan = await device.engine.build(
                data,
                profiles=dict(map(profile_of, arguments.profile)),
                engine=arguments.engine,
                refit=getattr(arguments, "refit", False),
                title=arguments.model.name,
            )
        print(plan.explain())
        if arguments.action == "build":
            output = arguments.output or arguments.model.with_suffix(".plan")
            await asyncio.to_thread(lambda: output.write_bytes(plan.serialize()))
            print(f"wrote {output}")
        if arguments.action == "bench":
            print(await _measured(device, plan, max(arguments.calls, 1)))
    return 0


def _check_plan(arguments: argparse.Namespace) -> None:
    """Refuse what says how a plan is built, for a file that is one.

    Raises:
        ValueError: One of these options is given.
    """
    for option in ("engine", "profile", "refit", "precision", "calibration"):
        if getattr(arguments, option, None):
            raise ValueError(
                f"{arguments.model} is a plan, which has its engine, profiles and precision already, and --{option} is "
                "of ONNX files: leave it out, or build the plan of the ONNX file"
            )


def _read(path: Path) -> bytes:
    """A plan, or a model with its weights."""
    data = regular_bytes(path)
    return data if data.startswith(b"CBENGINE") else with_contents(data, path.parent)


async def _lowered(device: Any, data: bytes, arguments: argparse.Namespace) -> bytes:
    """The model in another precision; says what that costs.

    Raises:
        ValueError: There are no inputs to calibrate with.
    """
    from callboard.kernel.engine.precision import IBuilderConfig, lower

    if not arguments.calibration:
        raise ValueError("--precision needs --calibration FILE.npz, with inputs such as the model will get")
    batches = await asyncio.to_thread(lambda: [dict(np.load(path)) for path in arguments.calibration])
    tensorrt = arguments.engine == "tensorrt"
    config = IBuilderConfig(arguments.precision, arguments.calibrator, symmetric=tensorrt)
    found = await lower(device, data, config, batches, engine=None if tensorrt else arguments.engine)
    print(found.explain())
    return found.data


async def _built_by_tensorrt(data: bytes, arguments: argparse.Namespace) -> None:
    """Write a plan of TensorRT, and say whether this machine would execute it."""
    from callboard.kernel.engine.trt import TrtRuntime

    runtime, output = TrtRuntime(), arguments.output or arguments.model.with_suffix(".plan")
    profiles = dict(map(profile_of, arguments.profile))
    built = await runtime.build(
        data, target=arguments.target, profiles=profiles, refit=arguments.refit, title=arguments.model.name
    )
    print(built.explain())
    await asyncio.to_thread(output.write_bytes, built.serialized)
    print(f"wrote {output}")
    if refusal := await runtime.refusal(built.serialized):
        print(f"this machine would not execute it: {refusal}")


def profile_of(text: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Name and shapes of ``NAME=LEAST:USUAL:MOST``.

    Raises:
        ValueError: It has another form.
    """
    name, _, shapes = text.rpartition("=")
    try:
        found = tuple(tuple(int(n) for n in shape.split("x")) for shape in shapes.split(":"))
    except ValueError:
        found = ()
    if not name or len(found) != 3:
        raise ValueError(f"--profile {text} is not NAME=LEAST:USUAL:MOST, such as x=1x3:8x3:64x3")
    return name, found


async def _measured(device: Any, plan: Any, calls: int) -> str:
    """The time of an execution, awaited one by one, on random numbers of the usual shapes."""
    rng = np.random.default_rng(0)
    inputs = {}
    for port in plan.inputs:
        profile = plan.profiles.get(port.name)
        shape = profile.usual if profile else tuple(n if isinstance(n, int) else 1 for n in port.shape or ())
        dtype = DTYPES[port.dtype]
        numbers = rng.standard_normal(shape) if dtype.is_float else np.zeros(shape)
        inputs[port.name] = device.put(numbers.astype(dtype.np))
    context, times = device.engine.context(plan), []
    for _ in range(calls + 1):
        begin = time.perf_counter()
        outs = await context.run(inputs)
        for ref in outs if isinstance(outs, tuple) else (outs,):
            await ref
        times.append(time.perf_counter() - begin)
    first, *later = times
    median, slow = np.percentile(later, [50, 99]) * 1e6
    return f"first execution {first * 1e3:.1f} ms; of {calls} later ones median {median:.0f} us, p99 {slow:.0f} us"
