"""``Building``: a plan, step by step: its model is read, checked and mapped on threads, the device asked in between."""

import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from callboard.core.errors import BackendUnavailable, LibraryError, ShapeError, UnsupportedOp
from callboard.kernel.engine.choice.contest import Contest
from callboard.kernel.engine.choice.steps import Steps, Stepwise
from callboard.kernel.engine.files.reading import OnThread
from callboard.kernel.engine.files.rewriting import whole
from callboard.kernel.engine.inputs.profiles import Port, Profile, profiles_of
from callboard.kernel.engine.mapped.graph import Mapped
from callboard.kernel.engine.mapped.tools import PLUGINS
from callboard.kernel.engine.messages import Build
from callboard.kernel.engine.onnxfile import Graph, Model, with_weights
from callboard.kernel.engine.plan import EnginePlan, digest_of, read_model, refittable_weights, settled
from callboard.kernel.nvrtc.handles import Answer

__all__ = ["Building", "Wanted"]

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


@dataclass(frozen=True)
class Wanted:
    """What ``dev.engine.build`` was asked for, by its parameters."""

    title: str
    profiles: Mapping[str, Any] | None
    engine: str | None
    refit: bool
    threads: int
    precision: str = "f32"


@dataclass(frozen=True)
class Source:
    """A model that has been read and checked, and the engine that is to execute it."""

    data: bytes = field(repr=False)
    model: Model
    inputs: list[Port]
    profiles: dict[str, Profile]
    engine: str
    reason: str


class Building:
    """Builds plans on a device.

    Args:
        submit: Submits a message.
        put: ``dev.put``.
        context: ``dev.engine.context``.
        release: ``dev.engine.release``.
    """

    def __init__(
        self, submit: Any, put: Callable[..., Any], context: Callable[..., Any], release: Callable[[EnginePlan], Any]
    ) -> None:
        self._submit, self._put, self._context, self._release = submit, put, context, release

    def steps(self, model: "bytes | str | os.PathLike[str]", wanted: Wanted) -> Steps[EnginePlan]:
        """The plan of a model.

        Args:
            model: The bytes of a file, or its path.
            wanted: How it is built.
        """
        backend = self._put(np.zeros(1, np.uint8)).device.partition(":")[0].lower()
        source = yield OnThread(partial(_read, model, wanted, backend))
        if wanted.engine is not None:
            try:
                return (yield from self._built(source.engine, source, wanted, backend))
            except LibraryError as e:
                if not _lacking(e):
                    raise
                raise LibraryError(f'{e}; use engine="callboard", or leave engine out', "onnxruntime") from e
        if source.engine == "callboard":
            return (yield from self._own(source, wanted, backend))
        contest = Contest(
            lambda engine: Stepwise(self._built(engine, source, wanted, backend)),
            self._context,
            self._release,
            self._put,
            (source.engine, "callboard"),
            source.reason,
        )
        rest = {"refit": wanted.refit, "threads": wanted.threads, "own": callboard_version()}
        rest |= {} if wanted.precision == "f32" else {"precision": wanted.precision}
        try:
            return (yield from contest.steps(source.data, rest))
        except LibraryError as e:
            if not _lacking(e):
                raise
            lacks = e
        try:
            plan: EnginePlan = yield from self._built("callboard", source, wanted, backend)
        except (UnsupportedOp, ShapeError) as e:
            raise LibraryError(f"{lacks}; nor does callboard's own engine execute it: {e}", "onnxruntime") from e
        plan.reason = f"ONNX Runtime refuses the model: {lacks}"
        return plan

    def _own(self, source: Source, wanted: Wanted, backend: str) -> Steps[EnginePlan]:
        """The plan by callboard's own engine; on CUDA by ONNX Runtime, where that can and the own one cannot."""
        try:
            return (yield from self._built("callboard", source, wanted, backend))
        except UnsupportedOp as e:
            if backend != "cuda" or plugins_of(source.model):
                raise
            lacks = e
        try:
            plan: EnginePlan = yield from self._built("onnxruntime", source, wanted, backend)
        except (BackendUnavailable, LibraryError, ShapeError) as e:
            raise UnsupportedOp(f"{lacks}; nor does ONNX Runtime execute it here: {e}") from e
        plan.reason = f"callboard's own engine refuses the model: {lacks}"
        return plan

    def _built(self, engine: str, source: Source, wanted: Wanted, backend: str) -> Steps[EnginePlan]:
        plan: EnginePlan = yield OnThread(partial(_planned, engine, source, wanted, backend, self._put))
        if engine == "callboard":
            yield from plan.runner.rehearse(self._submit, plan)
            return plan
        op = Build(model=settled(self._put, np.frombuffer(plan.executed, np.uint8)), spec=plan.spec)
        described = yield Answer(self._submit(op), lambda array: json.loads(bytes(array)))
        plan.version, plan.device = described["version"], described["device"]
        plan.waits, plan.on_host = described.get("waits"), tuple(described.get("on_host", ()))
        plan.outputs = _outputs(plan.title, described["outputs"], source.model.graph)
        return plan


def _lacking(error: LibraryError) -> bool:
    """True if ONNX Runtime lacks an operator for a dtype, such as products and convolutions of bf16 on a CPU."""
    return any(words in str(error) for words in ("NOT_IMPLEMENTED", "Type 'tensor(bfloat16)' of input parameter"))


def _read(model: "bytes | str | os.PathLike[str]", wanted: Wanted, backend: str) -> Source:
    """The model, read and checked; for a thread."""
    data = model if isinstance(model, bytes) else whole(model)
    found = read_model(data, wanted.title)
    ports = [Port(each.name, each.dtype or "", each.shape) for each in found.graph.inputs]
    profiles = profiles_of(wanted.title, ports, wanted.profiles)
    engine, reason = (wanted.engine, "as asked") if wanted.engine is not None else _chosen(backend, found)
    return Source(data, found, ports, profiles, engine, reason)


def _planned(engine: str, source: Source, wanted: Wanted, backend: str, put: Callable[..., Any]) -> EnginePlan:
    """The plan, as far as that needs no device; for a thread."""
    graph = source.model.graph
    weights = refittable_weights(source.model) if wanted.refit else {}
    executed = with_weights(source.data, weights, True) if weights else source.data
    own = engine == "callboard"
    return EnginePlan(
        engine=engine,
        version=callboard_version() if own else "",
        device=backend if own else "",
        title=wanted.title,
        data=source.data,
        inputs=source.inputs,
        outputs=[Port(each.name, each.dtype or "", each.shape) for each in graph.outputs],
        profiles=source.profiles,
        threads=wanted.threads,
        precision=wanted.precision,
        reason=source.reason,
        put=put,
        model=source.model,
        runner=Mapped(source.model, wanted.title, frozenset(weights)) if own else None,
        refittable=wanted.refit,
        executed=executed,
        digest="" if own else digest_of(executed),
    )


def _outputs(title: str, described: list[Any], graph: Graph) -> list[Port]:
    """The outputs as ONNX Runtime describes them."""
    declared = {each.name: each.shape for each in graph.outputs}
    found = []
    for name, kind, shape in described:
        if kind not in TYPES:
            raise ShapeError(f"{title}: output {name!r} is {kind}, which no ref can hold")
        extents = tuple(n if isinstance(n, str) or (isinstance(n, int) and n >= 0) else None for n in shape)
        # ONNX Runtime gives no axes for a shape that is not declared, like for a number.
        own = declared[name]
        if not extents and own is None:
            raise ShapeError(
                f"{title}: output {name!r} has no declared number of axes, which ONNX Runtime needs here; "
                'declare its shape in the model, or use engine="callboard"'
            )
        found.append(Port(name, TYPES[kind], extents or own))
    return found


def plugins_of(model: Model) -> list[str]:
    """The plugins among the operators of a model."""
    return sorted({node.title for node in model.graph.nodes} & set(PLUGINS))


def _chosen(backend: str, model: Model) -> tuple[str, str]:
    """The engine where none was asked for, and why."""
    if own := plugins_of(model):
        return "callboard", f"the model has the plugin {own[0]}"
    if backend != "cpu":
        return "callboard", f"the default on {backend}"
    if importlib.util.find_spec("onnxruntime") is None:
        return "callboard", "ONNX Runtime is not installed"
    return "onnxruntime", "the default on cpu"


def callboard_version() -> str:
    """The version of this package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("callboard")
    except PackageNotFoundError:
        return "0"
