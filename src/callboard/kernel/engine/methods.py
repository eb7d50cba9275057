"""The methods of ``dev.engine``."""

import functools
import importlib.util
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.errors import BackendUnavailable, ShapeError
from callboard.core.mode import Mode
from callboard.kernel.api import Api
from callboard.kernel.engine.choice.contest import Contest
from callboard.kernel.engine.choice.steps import Stepwise
from callboard.kernel.engine.context import ExecutionContext
from callboard.kernel.engine.files.outside import regular_bytes
from callboard.kernel.engine.files.reading import Later, reading
from callboard.kernel.engine.files.rewriting import whole
from callboard.kernel.engine.inputs.budget import BUDGET, check_budget
from callboard.kernel.engine.inputs.profiles import Port, profiles_of
from callboard.kernel.engine.mapped.graph import Mapped
from callboard.kernel.engine.mapped.tools import PLUGINS
from callboard.kernel.engine.messages import Build, EngineSpec, Release
from callboard.kernel.engine.onnxfile import Model, with_weights
from callboard.kernel.engine.plan import EnginePlan, EngineRefused, digest_of, header_of, read_model, refittable_weights
from callboard.kernel.nvrtc.handles import Answer

__all__ = ["ENGINES", "Methods"]

_log = logging.getLogger("callboard.engine")
ENGINES = ("onnxruntime", "callboard", "tensorrt")
TYPES = {
    "tensor(float)": "f32",
    "tensor(double)": "f64",
    "tensor(float16)": "f16",
    "tensor(bfloat16)": "bf16",
    **{f"tensor({sign}int{n})": f"{short}{n}" for sign, short in (("", "i"), ("u", "u")) for n in (8, 16, 32, 64)},
    "tensor(bool)": "bool",
    "tensor(float8e4m3fn)": "f8_e4m3",
    "tensor(float8e5m2)": "f8_e5m2",
    "tensor(complex64)": "c64",
    "tensor(complex128)": "c128",
}
"""Dtypes by ONNX Runtime's names."""


class Methods(Api[Mode]):
    """ONNX models: built once, executed on refs."""

    __slots__ = ()

    covers = frozenset({"build", "execute", "release"})

    def build(
        self,
        model: "bytes | bytearray | str | os.PathLike[str]",
        *,
        profiles: Mapping[str, Any] | None = None,
        precision: str = "f32",
        engine: str | None = None,
        refit: bool = False,
        threads: int = 0,
        title: str = "",
    ) -> Answer[EnginePlan]:
        """A plan of an ONNX model: ``plan = await dev.engine.build("model.onnx")``.

        Args:
            model: The path of a file, whose weights may lie in files beside it; or its bytes, with all weights.
            profiles: (smallest, usual, largest shape) of inputs with dynamic extents, by name. Other shapes are
                refused when a context is called; None: none is.
            precision: ``"f32"``: the model computes as it is written.
            engine: ``"onnxruntime"`` or ``"callboard"``, the ops of this device; None: on a CPU where ONNX Runtime is
                installed, the one that is faster: both are executed a few times, for a second at most, unless a
                shape is open or the model is large or slow, and the times are kept on disk. Otherwise
                ``"callboard"``.
            refit: Floating-point weights can be replaced (:meth:`EnginePlan.refit`). An engine then cannot fold them.
            threads: Threads of an execution on a CPU; 0: all that this process may use.
            title: Name in errors; the name of the file by default.

        Raises:
            OnnxError, OSError: The file is no model, or cannot be read, or is no regular file; or two inputs or outputs
                have one name; or bytes were passed, and weights are in other files.
            ShapeError: An input or output is no tensor, or a profile does not fit.
            UnsupportedOp: The engine lacks operators of the model; names all of them.
            BackendUnavailable: The engine is not installed.
            LibraryError: ONNX Runtime refuses the model; raised by the answer.

        A file is read on a thread: the answer raises what is wrong with it.
        """
        if not isinstance(model, bytes | bytearray | str | os.PathLike):
            raise TypeError(f"model is {type(model).__name__}; pass the bytes or the path of an ONNX file")
        title = title or ("model" if isinstance(model, bytes | bytearray) else Path(model).name)
        if precision != "f32":
            raise ShapeError(f"{title}: precision is {precision!r}; this version computes as the model says: 'f32'")
        given: Any = threads
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise ShapeError(f"{title}: threads is {threads!r}; pass a number, 0 for all")
        if engine is not None:
            _check_engine(engine)
        if not isinstance(model, bytes | bytearray):
            options: Any = {"profiles": profiles, "engine": engine, "refit": refit, "threads": threads, "title": title}
            return Later(reading(functools.partial(whole, model)), functools.partial(self.build, **options))
        data = bytes(model)
        found = read_model(data, title)
        ports = [Port(each.name, each.dtype or "", each.shape) for each in found.graph.inputs]
        checked = profiles_of(title, ports, profiles)
        reason = "as asked"
        if engine is None:
            backend = self._put(np.zeros(1, np.uint8)).device.partition(":")[0].lower()
            engine, reason = _chosen(backend, found)
            if engine == "onnxruntime":
                options = {"profiles": profiles, "refit": refit, "threads": threads, "title": title}
                own: Any = functools.partial(self.build, data, **options)
                engines = engine, "callboard"
                contest = Contest(lambda name: own(engine=name), self.context, self.release, self._put, engines, reason)
                rest = {"refit": refit, "threads": threads, "own": callboard_version()}
                return Stepwise(contest.steps(data, rest))
        first = self._put(np.frombuffer(data, np.uint8))
        backend = first.device.partition(":")[0].lower()
        weights = refittable_weights(found) if refit else {}
        executed = with_weights(data, weights, True) if weights else data
        digest = "" if engine == "callboard" else digest_of(executed)

        def plan(version: str, device: str, outputs: list[Port], runner: Any) -> EnginePlan:
            return EnginePlan(
                engine=engine,
                version=version,
                device=device,
                title=title,
                data=data,
                inputs=ports,
                outputs=outputs,
                profiles=checked,
                threads=threads,
                reason=reason,
                put=self._put,
                model=found,
                runner=runner,
                refittable=refit,
                executed=executed,
                digest=digest,
            )

        if engine == "callboard":
            declared = [Port(each.name, each.dtype or "", each.shape) for each in found.graph.outputs]
            made = plan(callboard_version(), backend, declared, Mapped(found, title, frozenset(weights)))
            made.runner.rehearse(self._submit, made)
            return Answer(first, lambda _: made)
        if weights:
            first = self._put(np.frombuffer(executed, np.uint8))
        spec = EngineSpec(title, digest, threads)

        def read(array: Any) -> EnginePlan:
            described = json.loads(bytes(array))
            outputs = []
            for name, kind, shape in described["outputs"]:
                if kind not in TYPES:
                    raise ShapeError(f"{title}: output {name!r} is {kind}, which no ref can hold")
                extents = tuple(n if isinstance(n, str) or (isinstance(n, int) and n >= 0) else None for n in shape)
                # ONNX Runtime gives no axes for a shape that is not declared, like for a number.
                own = next(each for each in found.graph.outputs if each.name == name)
                if not extents and own.shape is None:
                    raise ShapeError(
                        f"{title}: output {name!r} has no declared number of axes, which ONNX Runtime needs here; "
                        'declare its shape in the model, or use engine="callboard"'
                    )
                outputs.append(Port(name, TYPES[kind], extents or own.shape))
            return plan(described["version"], described["device"], outputs, None)

        return Answer(self._submit(Build(model=first, spec=spec)), read)

    def load(self, plan: "bytes | bytearray | str | os.PathLike[str]", *, fallback: bool = False) -> Answer[EnginePlan]:
        """A plan from :meth:`EnginePlan.serialize`, or from a file with it: ``plan = await dev.engine.load(data)``.

        Args:
            plan: The bytes, or the path of the file.
            fallback: A plan of TensorRT is executed by the device's own choice of an engine, from the model in it. The
                result's ``reason`` names both. False: it is refused.

        Raises:
            OnnxError, OSError: The file cannot be read, or is no regular file; raised by the answer, as is all that is
                wrong with its bytes.
            EngineRefused: The bytes are damaged, or a plan of another engine, version or device. Raised by the answer
                for ONNX Runtime, whose version the device knows.
        """
        if isinstance(plan, str | os.PathLike):
            data = reading(functools.partial(regular_bytes, plan))
            return Later(data, functools.partial(self.load, fallback=fallback))
        header, model = header_of(bytes(plan))
        if header["engine"] not in ENGINES:
            raise EngineRefused(f"the plan is of the engine {header['engine']!r}; there are {', '.join(ENGINES)}")
        compiled = header["engine"] == "tensorrt"
        of = f"{header['title']} is a plan of {header['version']} for {header['device']}"
        why = f"{of}, which callboard does not execute"
        if compiled and not fallback:
            raise EngineRefused(f"{why}; load it with fallback=True, or build the model with another engine")
        answer = self.build(
            model[: header["bytes"]],
            profiles=header["profiles"],
            engine=None if compiled else header["engine"],
            refit=header["refit"],
            threads=header["threads"],
            title=header["title"],
        )

        def check(made: EnginePlan) -> EnginePlan:
            if compiled:
                made.reason = f"{made.reason}; {why}"
                _log.warning("%s: %s executes it", why, made.engine)
                return made
            for what in ("version", "device"):
                if header[what] != getattr(made, what):
                    raise EngineRefused(
                        f"{made.title} is a plan of {made.engine} for {what} {header[what]!r}, and this device has "
                        f"{getattr(made, what)!r}; build it again"
                    )
            return made

        return answer.then(check)

    def context(
        self, plan: EnginePlan, *, record: Callable[..., Any] | None = None, budget: float = BUDGET
    ) -> ExecutionContext:
        """A context that executes a plan of this device: ``context = dev.engine.context(plan)``.

        Args:
            plan: The plan.
            record: ``dev.record``: callboard's own engine records its ops for each set of input shapes that comes
                again, for 16 of them, and replays them as one message. Such a context is used on one thread at a time.
                ONNX Runtime executes a model as one op without it. None: nothing is recorded.
            budget: Seconds of an execution, which then fails with ``BudgetSpent``: of callboard's own engine, the time
                until its ops are called, with loops; of ONNX Runtime, the time until it has computed. Looked at between
                nodes. ``math.inf``: any time.
        """
        if not isinstance(plan, EnginePlan):
            raise TypeError(f"plan is {type(plan).__name__}; pass the result of dev.engine.build, awaited")
        return ExecutionContext(plan, self._submit, record, check_budget(budget))

    def release(self, plan: EnginePlan) -> Any:
        """Close the engine's session of a plan now; ONNX Runtime's else stays until 32 others were used later.

        Executions called before are not touched, and one called later opens it again. Plans of the same file and number
        of threads share a session.

        Returns:
            What can be awaited until it is closed.
        """
        if plan.engine != "onnxruntime":
            plan.resident = plan.resident.again()
            return self._put(np.zeros(0, np.uint8))
        return self._submit(Release(spec=EngineSpec(plan.title, plan.digest, plan.threads)))


def _chosen(backend: str, model: Model) -> tuple[str, str]:
    """The engine where none was asked for, and why."""
    if own := sorted({node.title for node in model.graph.nodes} & set(PLUGINS)):
        return "callboard", f"the model has the plugin {own[0]}"
    if backend != "cpu":
        return "callboard", f"the default on {backend}"
    if importlib.util.find_spec("onnxruntime") is None:
        return "callboard", "ONNX Runtime is not installed"
    return "onnxruntime", "the default on cpu"


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise ShapeError(f"engine is {engine!r}; use one of {', '.join(ENGINES)}")
    if engine == "tensorrt":
        raise BackendUnavailable(
            'engine="tensorrt": callboard builds plans of TensorRT (TrtRuntime), and does not execute them; use '
            '"callboard" or "onnxruntime"'
        )


def callboard_version() -> str:
    """The version of this package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("callboard")
    except PackageNotFoundError:
        return "0"
