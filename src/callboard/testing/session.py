"""``LibrarySession``: execute ops on a backend one by one, without actors, hosts or a wire.

It executes an op like a context host, on the calling thread and synchronously: infer, take the message apart and put it
together again, prepare once per signature, allocate, launch, wait, check. Allocated memory is filled with ``0xff`` (NaN
in every floating type), so that an op that leaves an element of its output unwritten, or multiplies it by 0, is
detected.
"""

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from callboard.core import registry
from callboard.core.backend import AccelBackend, AccelStream, Memory, Status
from callboard.core.dtype import DTYPES, DTypeLike, as_dtype
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.library import Library
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Operand, Role, StructOperand, operands_of
from callboard.core.opinfo import read_signature
from callboard.core.ref.views import Index, indexed, reshaped
from callboard.kernel.memory import Copy, Download, Fill, Upload
from callboard.testing.purity import enqueue_only
from callboard.testing.replays import Access, Used, replayed

__all__ = ["LibrarySession", "SessionArray"]


class Block:
    """Memory of a session, released when no array refers to it any more."""

    __slots__ = ("memory", "session")

    def __init__(self, session: "LibrarySession", nbytes: int, origin: str | None = None) -> None:
        device = session.device
        if origin is None:
            self.memory: Memory = device.allocate(nbytes)
        else:
            self.memory = (device.allocate_managed if origin == "managed" else device.allocate_shared)(nbytes)
        self.session = session

    def __del__(self) -> None:
        # A session is synchronous: nothing is in flight. A failed allocation leaves a block without a session.
        if hasattr(self, "session") and not self.session.closed:
            self.session.release(self.memory)


class SessionArray(Operand):
    """An array on the session's device: an operand; slicing, ``.T`` and ``reshape`` give views, as of a ``GpuRef``."""

    __slots__ = ("block", "layout", "offset")

    def __init__(self, block: Block, layout: Layout, offset: int = 0) -> None:
        self.block = block
        self.layout = layout
        self.offset = offset

    @property
    def address(self) -> int:
        """Address of element 0."""
        return self.block.memory.address + self.offset

    def __getitem__(self, index: Index) -> "SessionArray":
        layout, offset = indexed(self.layout, index)
        return SessionArray(self.block, layout, self.offset + offset)

    def reshape(self, *shape: int) -> "SessionArray":
        """A view of another shape; one extent may be -1."""
        return SessionArray(self.block, reshaped(self.layout, shape), self.offset)

    @property
    def T(self) -> "SessionArray":  # noqa: N802 - NumPy's name
        """The view with its axes reversed."""
        layout = self.layout
        return SessionArray(self.block, layout_of(layout.dtype, layout.shape[::-1], layout.strides[::-1]), self.offset)


class HostArray(Operand):
    """A row-major array in host memory."""

    __slots__ = ("address", "array", "layout")

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self.array = array
        self.layout = layout_of(as_dtype(array.dtype), array.shape)
        self.address: int = array.ctypes.data


class SignaturePlan(NamedTuple):
    """The plan of a signature on this backend."""

    lib: str
    stream: AccelStream
    launch: Any
    state: Any
    captures: bool
    query_size: Any
    always: bool


class LibrarySession:
    """A device of a backend, opened on this thread; use it there only. A context manager.

    Args:
        backend: Name of the backend in the registry, or the backend itself.
        capture: Record every launch that declares that it can be recorded in a graph, on a stream other than its
            library's, and compare replays with the launch itself (:mod:`callboard.testing.replays`).
        pure: Refuse forbidden calls (:mod:`callboard.testing.purity`) in launches that can be recorded.

    Raises:
        BackendUnavailable: It cannot be opened here.
    """

    def __init__(self, backend: str | AccelBackend = "cpu", capture: bool = False, pure: bool = True) -> None:
        self._pure = pure
        self.backend = registry.backend(backend) if isinstance(backend, str) else backend
        self.classes = self.backend.libraries()
        self.device = self.backend.open(self.backend.devices()[0])
        self._recorder = self.device.stream() if capture else None
        self.closed = False
        self._launching = False
        self._unreleased: list[Memory] = []
        self._libraries: dict[str, Library] = {}
        self._streams: dict[str, AccelStream] = {}
        self._plans: dict[bytes, SignaturePlan] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- arrays --------------------------------------------------------------------------------------------------------

    def put(self, array: Any, dtype: DTypeLike | None = None) -> SessionArray:
        """A row-major copy of a host array (or of anything ``numpy.asarray`` takes) on the device."""
        host = HostArray(np.array(array, None if dtype is None else as_dtype(dtype).np, order="C"))
        out = self._allocate(host.layout)
        self.submit(Upload(host=host, out=out))
        return out

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = "f32") -> SessionArray:
        """A new array; its bytes are ``0xff``."""
        out = self._allocate(layout_of(as_dtype(dtype), (shape,) if isinstance(shape, int) else shape))
        self.submit(Fill(out=_octets(out.block), fill_value=255))
        return out

    def _made(self, op: Op[Any, Any], layout: Layout) -> SessionArray:
        """An output."""
        if op.memory is None:
            return self.empty(layout.shape, layout.dtype)
        return SessionArray(Block(self, layout.nbytes, op.memory), layout)

    def get(self, ref: SessionArray) -> "np.ndarray[Any, Any]":
        """A copy on the host; views of any strides."""
        host = HostArray(np.empty(ref.shape, ref.dtype.np))
        if not ref.layout.contiguous:
            ref = self.submit(Copy(src=ref))
        self.submit(Download(src=ref, host=host))
        return host.array

    # -- ops -----------------------------------------------------------------------------------------------------------

    def why_not(self, op: Op[Any, Any]) -> str | None:
        """The reason why the backend does not execute this op, None if it does."""
        cls = self.classes.get(info_of(type(op)).library)
        return "no such library" if cls is None else cls.why_not(op)

    def submit(self, op: Op[Any, Any]) -> Any:
        """Execute an op and wait for it.

        Returns:
            The op's reply: an array, a NamedTuple of arrays, a number, or None.

        Raises:
            ShapeError: The operands do not fit.
            UnsupportedOp: The backend does not execute it.
            AccelError: It failed.
        """
        info = info_of(type(op))
        outputs = outputs_of(op)
        plan = self._plan(info.split(op).signature)
        shapes = self._sized(op, plan, outputs)
        sized, outputs = shapes is not outputs, shapes
        made = {name: self._made(op, layout) for name, layout in outputs.items()}
        status = self._launch(op, plan._replace(captures=plan.captures and not sized), made)
        if type(op).answers is not None and status is not None:
            return msgspec.convert(status.answer(), type(op).answers)
        return self._answer(op, made)

    def engine_of(self, op: Op[Any, Any]) -> str | None:
        """The engine that executed this op if its library has several, None if it has one."""
        plan = self._plans.get(info_of(type(op)).split(op).signature)
        return None if plan is None else getattr(plan.state, "executed_by", None)

    def release(self, memory: Memory) -> None:
        """Free the memory; later, when a launch runs, which may be recorded: freeing would end the recording."""
        self._unreleased.append(memory)
        while self._unreleased and not self._launching:
            self.device.release(self._unreleased.pop())

    def close(self) -> None:
        """Close libraries, streams and device. Arrays cannot be used any more; closing twice is harmless."""
        if self.closed:
            return
        self.closed = True
        for plan in self._plans.values():
            _close(plan)
        for library in self._libraries.values():
            library.close()
        for stream in (*self._streams.values(), *([self._recorder] if self._recorder else [])):
            stream.close()
        self.device.close()

    def _launch(self, op: Op[Any, Any], plan: SignaturePlan, made: dict[str, SessionArray]) -> Status | None:
        """Run a launch, through a graph on request; raises the op's own failure. Returns its result."""
        arguments = _arguments(op, made)
        pure = self._pure and plan.captures  # a launch that cannot be recorded may do more than enqueue

        def launch(stream: AccelStream) -> Status | None:
            with enqueue_only(self.device, stream) if pure else contextlib.nullcontext():
                status: Status | None = plan.launch(stream, plan.state, *arguments)
            return status

        if self._recorder is not None and plan.captures:
            self._replay(op, plan, launch, made)
            return None
        self._launching = True
        try:
            status = launch(plan.stream)
        finally:
            self._launching = False
        outcome = None
        if status is not None and status.nbytes:
            outcome = self.device.read_back(plan.stream, status.address, status.nbytes)
        plan.stream.synchronize()
        if status is not None:
            status.check(b"" if outcome is None else outcome.take())
        return status

    def _replay(
        self,
        op: Op[Any, Any],
        plan: SignaturePlan,
        launch: Callable[[AccelStream], Status | None],
        made: dict[str, SessionArray],
    ) -> None:
        """Replay a launch from a graph, and compare it with itself."""
        used = [
            Used(name, value, value.block, role is not Role.OUT, role in (Role.OUT, Role.INOUT))
            for _, _, name, role, value in info_of(type(op)).leaves(op)
            if isinstance(value, SessionArray)
        ]
        used += [Used(name, array, array.block, False, True) for name, array in made.items()]
        recorder, self._recorder = self._recorder, None  # calls in the meantime are not recorded
        assert recorder is not None
        self._launching = True
        try:
            access = Access(self.get, lambda block: self.get(_octets(block)), self._overwrite)
            replayed(info_of(type(op)).tag, self.device, plan.stream, recorder, launch, access, used)
        finally:
            self._launching = False
            self._recorder = recorder

    def _overwrite(self, block: Block, octets: "np.ndarray[Any, Any]") -> None:
        self.submit(Upload(host=HostArray(octets), out=_octets(block)))

    def _sized(self, op: Op[Any, Any], plan: SignaturePlan, outputs: dict[str, Layout]) -> dict[str, Layout]:
        """Outputs whose extents depend on data, sized."""
        opened = {name: layout for name, layout in outputs.items() if isinstance(layout, OpenLayout)}
        if not opened and not plan.always:
            return outputs
        if plan.query_size is None:
            raise UnsupportedOp(
                f"{self.backend.name}, {info_of(type(op)).tag}: it cannot size outputs that depend on data"
            )
        extents = plan.query_size(plan.state, *_arguments(op, {}))
        shapes = zip(opened.items(), extents, strict=True)
        return outputs | {name: layout.closed(shape) for (name, layout), shape in shapes}

    def _answer(self, op: Op[Any, Any], made: dict[str, SessionArray]) -> Any:
        fields = type(op).returns
        if type(op).value and fields[0] in made:
            result = made[fields[0]]
            stream = self._streams[info_of(type(op)).library]
            readback = self.device.read_back(stream, result.address, result.nbytes)
            stream.synchronize()
            return np.frombuffer(readback.take(), result.dtype.np)[0].item()
        refs = [_output(op, name, made) for name in fields]
        results = type(op).results
        if results is not None:
            return results(*refs)
        if any(isinstance(ref, tuple) for ref in refs):
            return tuple(one for ref in refs for one in (ref if isinstance(ref, tuple) else (ref,)))
        return refs[0] if refs else None

    def _plan(self, signature: bytes) -> SignaturePlan:
        plan = self._plans.pop(signature, None)
        if plan is None:
            tag, statics, skeleton = read_signature(signature)
            op = info_of(OPS[tag]).join(OPS[tag], statics, skeleton)
            reason = self.why_not(op)
            if reason is not None:
                raise UnsupportedOp(f"{self.backend.name}, {tag}: {reason}")
            lib = tag.partition(".")[0]
            library = self._library(lib)
            prepare = library.prepare_table.get(type(op))
            state = op if prepare is None else getattr(library, prepare.method)(op)
            launch = library.launch_table[type(op)]
            query_size = library.size_table.get(type(op))
            plan = SignaturePlan(
                lib,
                self._streams[lib],
                getattr(library, launch.method),
                state,
                launch.captures and getattr(state, "captures", True),
                None if query_size is None else getattr(library, query_size.method),
                query_size is not None and query_size.due(op),
            )
            self._limit(lib, library.max_plans)
        self._plans[signature] = plan  # at the end: the least recently used are first
        return plan

    def _limit(self, lib: str, most: int | None) -> None:
        """Make room for a plan of this library; nothing is in flight."""
        if most is None or len(self._plans) < most:
            return
        signatures = [signature for signature, plan in self._plans.items() if plan.lib == lib]
        if len(signatures) >= most:
            _close(self._plans.pop(signatures[0]))

    def _library(self, lib: str) -> Library:
        library = self._libraries.get(lib)
        if library is None:
            stream = self._streams[lib] = self.device.stream()
            library = self._libraries[lib] = self.classes[lib](self.device, stream)
        return library

    def _allocate(self, layout: Layout) -> SessionArray:
        return SessionArray(Block(self, layout.nbytes), layout)


def _octets(block: Block) -> SessionArray:
    return SessionArray(block, layout_of(DTYPES["u8"], (block.memory.nbytes,)))


def _close(plan: SignaturePlan) -> None:
    close = getattr(plan.state, "close", None)
    if callable(close):
        close()


def _arguments(op: Op[Any, Any], made: dict[str, SessionArray]) -> list[Any]:
    """The arguments of a launch."""
    arguments: list[Any] = []
    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        if value is None:
            parts = [array for name, array in made.items() if name.startswith(f"{field.name}.")]
            value = tuple(parts) if parts else made.get(field.name)
        arguments.append(_argument(tuple(operands_of(value).values()) if isinstance(value, StructOperand) else value))
    return arguments


def _output(op: Op[Any, Any], field: str, made: dict[str, SessionArray]) -> Any:
    """A returned field, made or given."""
    parts = {name.partition(".")[2]: array for name, array in made.items() if name.startswith(f"{field}.")}
    if parts:
        template: Any = op.infer()[field]
        if isinstance(template, tuple):
            return tuple(parts.values())
        return msgspec.structs.replace(template, **parts)
    return made.get(field, getattr(op, field))


def _argument(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_argument, value))
    return value.address if isinstance(value, Operand) else value  # type: ignore[attr-defined]
