"""The methods of ``dev.engine``."""

import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.errors import BackendUnavailable, ShapeError
from callboard.core.mode import Mode
from callboard.kernel.api import Api
from callboard.kernel.engine.choice.building import Building, Wanted
from callboard.kernel.engine.choice.steps import Steps, Stepwise
from callboard.kernel.engine.context import ExecutionContext
from callboard.kernel.engine.files.outside import regular_bytes
from callboard.kernel.engine.files.reading import OnThread
from callboard.kernel.engine.inputs.budget import BUDGET, check_budget
from callboard.kernel.engine.messages import Release
from callboard.kernel.engine.plan import EnginePlan, EngineRefused, header_of
from callboard.kernel.nvrtc.handles import Answer

__all__ = ["ENGINES", "Methods"]

_log = logging.getLogger("callboard.engine")
ENGINES = ("onnxruntime", "callboard", "tensorrt")
PRECISIONS = ("f32", "tf32")


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
            precision: ``"f32"``: the model computes as it is written. ``"tf32"``: callboard's own engine may round the
                factors of convolutions, and of products with weights, in f32 to TF32 (10 bits of mantissa), where the
                device has it; ONNX Runtime on CUDA those of any product.
            engine: ``"onnxruntime"`` or ``"callboard"``, the ops of this device; None: on a CPU where ONNX Runtime is
                installed, the one that is faster: both are executed a few times, for a second at most, unless a
                shape is open or the model is large or slow, and the times are kept on disk. Otherwise
                ``"callboard"``; on CUDA ``"onnxruntime"`` for a model that callboard's own engine refuses, where its
                CUDA build is installed. On a CPU ``"callboard"`` for a model with operators that ONNX Runtime lacks for
                a dtype. ``plan.reason`` says so.
            refit: Floating-point weights can be replaced (:meth:`EnginePlan.refit`). An engine then cannot fold them.
            threads: Threads of an execution on a CPU; 0: all that this process may use.
            title: Name in errors; the name of the file by default.

        Raises:
            OnnxError, OSError: The file is no model, or cannot be read, or is no regular file; or two inputs or outputs
                have one name; or bytes were passed, and weights are in other files.
            ShapeError: An input or output is no tensor, or a profile does not fit.
            UnsupportedOp: The engine lacks operators of the model; names all of them.
            BackendUnavailable: The engine is not installed.
            LibraryError: ONNX Runtime refuses the model.

        The model is read, checked and mapped on a thread, and what the plan is tried with is called in slices of 5 ms:
        event loops go on. The answer raises what is wrong with the model, the call what is wrong with the arguments.
        """
        if not isinstance(model, bytes | bytearray | str | os.PathLike):
            called = "its SerializeToString()" if hasattr(model, "SerializeToString") else "the bytes"
            raise TypeError(f"model is {type(model).__name__}; pass {called} or the path of an ONNX file")
        title = title or ("model" if isinstance(model, bytes | bytearray) else Path(model).name)
        if precision not in PRECISIONS:
            raise ShapeError(
                f"{title}: precision is {precision!r}; use one of {', '.join(PRECISIONS)}, or lower the model "
                f"(callboard.kernel.engine.lower)"
            )
        given: Any = threads
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise ShapeError(f"{title}: threads is {threads!r}; pass a number, 0 for all")
        if engine is not None:
            _check_engine(engine)
        wanted = Wanted(title, None if profiles is None else dict(profiles), engine, refit, threads, precision)
        building = Building(self._submit, self._put, self.context, self.release)
        return Stepwise(building.steps(bytes(model) if isinstance(model, bytearray) else model, wanted))

    def load(self, plan: "bytes | bytearray | str | os.PathLike[str]", *, fallback: bool = False) -> Answer[EnginePlan]:
        """A plan from :meth:`EnginePlan.serialize`, or from a file with it: ``plan = await dev.engine.load(data)``.

        Args:
            plan: The bytes, or the path of the file.
            fallback: A plan of TensorRT is executed by the device's own choice of an engine, from the model in it. The
                result's ``reason`` names both. False: it is refused.

        Raises:
            OnnxError, OSError: The file cannot be read, or is no regular file.
            EngineRefused: The bytes are damaged, or a plan of another engine, version or device.

        As for :meth:`build`, event loops go on, and the answer raises what is wrong.
        """
        given = plan if isinstance(plan, str | os.PathLike) else bytes(plan)
        return Stepwise(self._loaded(given, fallback))

    def _loaded(self, plan: "bytes | str | os.PathLike[str]", fallback: bool) -> Steps[EnginePlan]:
        header, model = yield OnThread(functools.partial(_opened, plan))
        if header["engine"] not in ENGINES:
            raise EngineRefused(f"the plan is of the engine {header['engine']!r}; there are {', '.join(ENGINES)}")
        compiled = header["engine"] == "tensorrt"
        of = f"{header['title']} is a plan of {header['version']} for {header['device']}"
        why = f"{of}, which callboard does not execute"
        if compiled and not fallback:
            raise EngineRefused(f"{why}; load it with fallback=True, or build the model with another engine")
        made: EnginePlan = yield self.build(
            model,
            profiles=header["profiles"],
            engine=None if compiled else header["engine"],
            refit=header["refit"],
            threads=header["threads"],
            precision=header["precision"],
            title=header["title"],
        )
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
        made.reason = header["reason"] or "as the plan says"
        return made

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

        Executions called before are not touched, and one called later opens it again. Plans of the same file, number of
        threads and precision share a session.

        Returns:
            What can be awaited until it is closed.
        """
        if plan.engine != "onnxruntime":
            plan.resident = plan.resident.again()
            return self._put(np.zeros(0, np.uint8))
        if plan.waits is not None:
            plan.resident = plan.resident.again()  # whose first execution opens it again
        return self._submit(Release(spec=plan.spec))


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise ShapeError(f"engine is {engine!r}; use one of {', '.join(ENGINES)}")
    if engine == "tensorrt":
        raise BackendUnavailable(
            'engine="tensorrt": callboard builds plans of TensorRT (TrtRuntime), and does not execute them; use '
            '"callboard" or "onnxruntime"'
        )


def _opened(plan: "bytes | str | os.PathLike[str]") -> tuple[dict[str, Any], bytes]:
    """Header and model of a serialised plan; for a thread."""
    header, model = header_of(plan if isinstance(plan, bytes) else regular_bytes(plan))
    return header, model[: header["bytes"]]
