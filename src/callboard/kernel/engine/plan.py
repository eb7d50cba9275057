"""``EnginePlan``: a model with the engine that executes it, its profiles and its weights."""

import hashlib
import itertools
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, layout_of
from callboard.core.ref.hostarrays import refuse_masked
from callboard.kernel.engine.inputs.bounds import bounds_of
from callboard.kernel.engine.inputs.profiles import Port, Profile
from callboard.kernel.engine.inputs.refused import MOST_NAMES
from callboard.kernel.engine.messages import EngineSpec
from callboard.kernel.engine.onnxfile import Model, OnnxError, model_of, with_weights

__all__ = ["EnginePlan", "EngineRefused", "Resident", "container", "digest_of", "header_of", "settled"]

Array = np.ndarray[Any, Any]
MAGIC = b"CBENGINE"
FORMAT = 1
LONGEST_HEADER = 16 << 20
_numbers = itertools.count(1)
LARGE = 1 << 20
MOST_SHAPES = 256
"""Sets of input shapes that are known to have been executed."""
"""Bytes of an array that never changes, from which on its copy to the device is not waited for."""


class EngineRefused(ShapeError):
    """A serialised plan cannot be executed here: damaged, or of another engine, version or device; says which."""


class Resident:
    """The arrays of a plan that are on the device, in one generation, for one set of weights.

    Args:
        put: Copies a host array to the device.
        weights: The weights that executions are given, by name.
    """

    def __init__(self, put: Callable[..., Any], weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.computed: dict[str, Any] = {}
        """Values that an engine has derived from the weights, by name; on the host."""
        self._put = put
        self._refs: dict[str, Any] = {}
        self._executed: set[object] = set()

    def there(self, name: str) -> Any:
        """The ref of a named array; None before its first use."""
        return self._refs.get(name)

    def ref(self, name: str, array: Callable[[], Array]) -> Any:
        """The ref of a named array, copied on first use."""
        found = self._refs.get(name)
        if found is None:
            found = self._refs[name] = settled(self._put, array())
        return found

    def first(self, shapes: object) -> bool:
        """True at the first execution with these shapes; they count as executed then."""
        if shapes in self._executed:
            return False
        if len(self._executed) >= MOST_SHAPES:
            self._executed.clear()
        self._executed.add(shapes)
        return True

    @property
    def refs(self) -> list[Any]:
        """The weights that are there."""
        return list(self._refs.values())

    @property
    def is_stale(self) -> bool:
        """True if one of its arrays was lost with its context."""
        return any(ref.is_stale for ref in self.refs)

    def again(self) -> "Resident":
        """The same weights, for another generation."""
        return Resident(self._put, self.weights)


@dataclass
class EnginePlan:
    """A model that contexts of ``dev.engine.context(plan)`` execute. It is valid in every generation.

    Attributes:
        engine: ``"onnxruntime"`` or ``"callboard"``.
        version: The engine's version.
        device: The kind of device that it was built for.
        title: Name of the model in errors.
        data: The ONNX file.
        inputs: Inputs in the order of the file.
        outputs: Outputs in the order of the file.
        profiles: The shapes that are allowed, for inputs with dynamic extents.
        threads: Threads of an execution on a CPU; 0: the engine's choice.
        reason: Why this engine was chosen.
        precision: ``"f32"``, or ``"tf32"``: see ``dev.engine.build``.
    """

    engine: str
    version: str
    device: str
    title: str
    data: bytes
    inputs: list[Port]
    outputs: list[Port]
    profiles: dict[str, Profile]
    threads: int
    reason: str
    put: Callable[..., Any] = field(repr=False)
    model: Model = field(repr=False)
    runner: Any = field(repr=False, default=None)
    """The engine's own part: a :class:`~callboard.kernel.engine.mapped.Mapped`, or None."""
    refittable: bool = False
    executed: bytes = field(repr=False, default=b"")
    """The file that the engine reads: ``data``, with the weights as inputs if they can be replaced."""
    precision: str = "f32"
    digest: str = ""
    """Of ``executed``, for an engine that keeps sessions; see :func:`digest_of`."""
    waits: bool | None = None
    """ONNX Runtime on CUDA: True if each execution waits on the host for the device, False if only the first one of
    each set of shapes takes long there. None for other engines."""
    on_host: tuple[str, ...] = ()
    """Nodes that ONNX Runtime executes on the host although the device is another: operator and name."""

    def __post_init__(self) -> None:
        self.executed = self.executed or self.data
        weights = refittable_weights(self.model) if self.refittable else {}
        self.resident = Resident(self.put, weights)
        self.bounds = bounds_of(self.model.graph)
        self.token = f"{os.getpid()}.{next(_numbers)}"
        """Names it in this process and in its hosts."""

    def __repr__(self) -> str:
        return f"<plan of {self.title} by {self.engine} {self.version} on {self.device}, {len(self.data)} bytes>"

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that the model uses."""
        return self.model.opset

    @property
    def spec(self) -> EngineSpec:
        """What names the session of an engine that keeps sessions."""
        return EngineSpec(self.title, self.digest, self.threads, tf32=self.precision == "tf32")

    def check(self, at: int, layout: Layout, on_host: bool = False) -> None:
        """Check an array for the input number ``at``; see :meth:`Port.check`."""
        port = self.inputs[at]
        port.check(self.title, layout, self.profiles.get(port.name), on_host)

    def check_host(self, at: int, array: Array) -> None:
        """Check a host array for the input number ``at``, as :meth:`check` does, and its values if they are indices.

        Raises:
            InputRefused: A value is outside of a table that the model indexes with it.
        """
        name = self.inputs[at].name
        try:
            dtype = as_dtype(array.dtype)
        except (TypeError, ShapeError) as e:  # words, objects
            raise ShapeError(
                f"{self.title}: input {name!r} is an array of {array.dtype}, expected {self.inputs[at]}"
            ) from e
        self.check(at, layout_of(dtype, array.shape), on_host=True)
        if (bounds := self.bounds.get(name)) is not None:
            bounds.check(self.title, name, array)

    def refit(self, weights: Mapping[str, Any]) -> None:
        """Replace weights: executions called from now on use the new ones, earlier ones the old ones, whole.

        Args:
            weights: New values by the names of initializers, of their shapes and dtypes. Others stay.

        Raises:
            ShapeError: The plan was built without ``refit=True``, or a weight does not fit. Nothing was replaced.
            TypeError: A weight has masked elements. Nothing was replaced.
        """
        if not self.refittable:
            raise ShapeError(f"{self.title}: the plan's weights are fixed; build it with refit=True")
        now = dict(self.resident.weights)
        for name, value in weights.items():
            refuse_masked(value, f"{self.title}: weight {name!r}", "array.filled(value)")
            array = np.ascontiguousarray(value)
            old = now.get(name)
            if old is None:
                there = ", ".join(sorted(now)) or "none"
                raise ShapeError(f"{self.title}: there is no weight {name!r}; its weights are {there}")
            if array.shape != old.shape or array.dtype != old.dtype:
                raise ShapeError(
                    f"{self.title}: weight {name!r} is {array.dtype}{list(array.shape)}, "
                    f"expected {old.dtype}{list(old.shape)}"
                )
            now[name] = array.copy()
        self.resident = Resident(self.put, now)

    @property
    def weights(self) -> dict[str, Array]:
        """The weights that :meth:`refit` can replace, by name; empty without ``refit=True``."""
        return dict(self.resident.weights)

    def serialize(self) -> bytes:
        """The plan as bytes, for ``dev.engine.load``: a header, and the model with its present weights."""
        data = with_weights(self.data, dict(self.resident.weights), False) if self.refittable else self.data
        header = {
            "engine": self.engine,
            "version": self.version,
            "device": self.device,
            "title": self.title,
            "opset": self.opset,
            "threads": self.threads,
            "refit": self.refittable,
            "precision": self.precision,
            "reason": self.reason,
            "profiles": {name: each.shapes for name, each in self.profiles.items()},
            "bytes": len(data),
        }
        return container(header, data)

    def explain(self) -> str:
        """Engine, inputs, outputs and profiles, in lines."""
        lines = [f"{self.title}: {self.engine} {self.version} on {self.device}: {self.reason}"]
        lines += [f"opset {self.opset}, {len(self.model.graph.nodes)} nodes, {len(self.data)} bytes"]
        if self.runner is not None:
            lines += [f"{self.runner.folded} nodes were computed when the plan was built"]
            if joined := self.runner.joined:
                lines += [f"steps of several nodes: {', '.join(f'{n} {op}' for op, n in sorted(joined.items()))}"]
        if self.on_host:
            lines += [f"{len(self.on_host)} nodes are executed on the host: {', '.join(self.on_host[:MOST_NAMES])}"]
            lines[-1] += ", …" if len(self.on_host) > MOST_NAMES else ""
        lines += ["executions wait on the host for values of the device"] if self.waits else []
        lines += [f"input  {port}{self.profiles.get(port.name, '')}" for port in self.inputs]
        lines += [f"output {port}" for port in self.outputs]
        if self.precision != "f32":
            lines += [f"precision {self.precision}"]
        if self.refittable:
            lines += [f"{len(self.resident.weights)} weights can be replaced (refit)"]
        return "\n".join(lines)


def settled(put: Callable[..., Any], array: Array) -> Any:
    """The ref of an array that never changes: a large one is copied off the calling thread."""
    return put(array, non_blocking=True) if array.nbytes > LARGE else put(array)


def digest_of(data: bytes) -> str:
    """What names the session of a model: BLAKE2b of its bytes, which takes a third of the time of SHA-256."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def refittable_weights(model: Model) -> dict[str, Array]:
    """The floating-point initializers of a model."""
    found = model.graph.initializers.items()
    return {name: array for name, array in found if array.dtype.kind in "fV" and array.dtype != object and array.size}


def container(header: Mapping[str, Any], data: bytes) -> bytes:
    """A serialised plan: the header, the model (and what an engine has compiled of it), and a checksum."""
    text = json.dumps(header).encode()
    body = MAGIC + struct.pack("<II", FORMAT, len(text)) + text + data
    return body + hashlib.sha256(body).digest()


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header of a serialised plan, and its model with what an engine has compiled of it.

    Raises:
        EngineRefused: The bytes are no plan, truncated or changed.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise EngineRefused("this is no serialised plan: it does not begin with CBENGINE; build one of an ONNX file")
    start = len(MAGIC) + 8
    if len(data) < start + 32:
        raise EngineRefused(f"the plan is truncated: it has {len(data)} bytes")
    form, length = struct.unpack_from("<II", data, len(MAGIC))
    if form != FORMAT:
        raise EngineRefused(f"the plan has the format {form}, this callboard reads {FORMAT}; build it again")
    if length > min(LONGEST_HEADER, len(data) - start - 32):
        raise EngineRefused(f"the plan is truncated: its header has {length} bytes, the plan {len(data)}")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise EngineRefused("the plan was changed or truncated: its checksum differs; build it again")
    try:
        header = json.loads(data[start : start + length])
        model = data[start + length : -32]
        right = (
            isinstance(header, dict)
            and isinstance(header.get("compiled", 0), int)
            and header["bytes"] + header.get("compiled", 0) == len(model)
            and isinstance(header["threads"], int)
        )
        right = right and all(isinstance(header[key], str) for key in ("engine", "version", "device", "title"))
        right = right and isinstance(header["profiles"], dict) and isinstance(header["refit"], bool)
        right = right and isinstance(header.setdefault("precision", "f32"), str)
        right = right and isinstance(header.setdefault("reason", ""), str)
    except (ValueError, KeyError, TypeError, RecursionError):
        right, header, model = False, {}, b""
    if not right:
        raise EngineRefused("the plan's header is damaged; build it again")
    return header, model


def read_model(data: bytes, title: str) -> Model:
    """The model of a file, with its inputs and outputs checked.

    Raises:
        OnnxError: As for :func:`model_of`.
        ShapeError: It takes or gives something else than tensors that refs can hold, or one of 2**63 bytes or more.
    """
    try:
        model = model_of(data)
    except OnnxError as e:
        raise OnnxError(f"{title}: {e}") from e
    for kind, ports in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for port in ports:
            if port.dtype is None:
                raise ShapeError(f"{title}: {kind} {port.name!r} is {port.kind}, which no ref can hold")
            extents = [n for n in port.shape or () if isinstance(n, int)]
            if len(extents) == len(port.shape or ()):
                try:
                    layout_of(as_dtype(port.dtype), tuple(extents))
                except ShapeError as e:
                    raise ShapeError(f"{title}: {kind} {port.name!r} is declared as {e}") from None
    if not model.graph.outputs:
        raise ShapeError(f"{title}: the model has no outputs")
    return model
