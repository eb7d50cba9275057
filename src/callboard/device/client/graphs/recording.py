"""``Recording``: a chain of ops, called once and replayed as one."""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from types import GenericAlias, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from callboard.actors.handles import Handle
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.mode import Asynchronous, Blocking, Mode
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.device.client.graphs.blocks import Cases, else_block, if_block, switch_block, while_block
from callboard.device.client.graphs.building import Input, built
from callboard.device.client.graphs.drawing import dot, svg
from callboard.device.client.graphs.recorder import OpRecorder
from callboard.device.client.graphs.replaying import Replays, checked_ref
from callboard.device.client.graphs.script import RecordingNode, nodes_of
from callboard.device.client.graphs.services import RecordingServices, RecordingStats
from callboard.device.client.line.transfers import Transfers
from callboard.kernel.recording import Recorder, recorder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import TypeVar as TypeVarWithDefault

    from callboard.device.client.line.port import OpPort

    Result_co = TypeVarWithDefault(
        "Result_co", covariant=True, default=GpuRef[Mode] | tuple[GpuRef[Mode], ...] | Reply[None]
    )
else:
    Result_co = TypeVar("Result_co", covariant=True)

__all__ = ["Recording"]

MOST_REPLAYS = 10_000
"""Replays in one message, so that one message does not hold the host for long."""


class Recording(Handle, Generic[Mode, Result_co]):
    """A chain of ops, called once and replayed as one: one message, and one launch where the device records graphs.

    ::

        with dev.record(x=x) as step:
            h = dev.blas.gemm(x, w)
            layer = step.returns(dev.tensor.permute("ij->ji", h))  # step itself; type checkers know its results
        y = layer.replay(x=batch)  # a ref at once, as of every op

    Inside the block ops are checked and kept, and do not run. Arrays that they make belong to the recording, and every
    replay writes them again, in the same memory: copy what has to outlive the next replay (``dev.copy(y)``). Results
    that no variable holds when the block ends share memory with each other.

    :meth:`replay` may be given the named arrays: an array of the host gives the recorded one new contents, a ref takes
    its place from then on. A replay comes in program order, as an op does. It fails if one of its ops fails, with a
    note that names the op, and then all that it writes counts as failed.

    After a lost context the first replay records the ops again; arrays that were lost must be given then.

    Use it on one thread at a time. It takes memory until it is closed, or dropped.

    Attributes:
        nodes: Its ops, and which ops each has to come after.
    """

    if not TYPE_CHECKING:  # to leave out Result_co; typing's own TypeVar has defaults from Python 3.13 on
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self, port: "OpPort", transfers: Transfers, services: RecordingServices, inputs: Mapping[str, GpuRef[Any]]
    ) -> None:
        self._port = port
        self._transfers = transfers
        self._services = services
        self._named = [Input(name, checked_ref(port, name, ref), named=True) for name, ref in inputs.items()]
        self._returned: tuple[GpuRef[Any], ...] = ()
        self._recorder: OpRecorder | None = None
        self._token: Token[Recorder | None] | None = None
        self._state = "not begun: use it in a with statement"
        self._replays: Replays | None = None
        self._recorded = 0  # the generation of the refs that the block has given
        self.nodes: list[RecordingNode] = []

    # -- recording -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("a recording is made once; dev.record() makes another")
        if recorder.get() is not None:
            raise RuntimeError("another recording is open; end it first")
        self._recorder = OpRecorder(self._port)
        self._recorded = self._port.generation
        self._token = recorder.set(self._recorder)
        self._port.recordings += 1
        self._state = "open: its block has not ended"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        if self._recorder is not None:
            self._recorder.flush()
        recorder.reset(self._token)
        self._port.recordings -= 1
        self._state = "given up: its block ended with an exception"
        taken, self._recorder = self._recorder, None
        if error is not None or taken is None:
            return
        if not taken.ops:
            raise ValueError("nothing was recorded: no op of this device was called in the block")
        made = built(self._port, taken, self._named, self._returned)
        self._replays = Replays(self._port, self._transfers, self._services, made, self._recorded)
        self._returned = ()
        self.nodes = nodes_of(taken.ops, taken.blocks)
        self._state = ""

    @overload
    def returns(self) -> "Recording[Mode, Reply[None]]": ...
    @overload
    def returns(self, ref: GpuRef[Mode], /) -> "Recording[Mode, GpuRef[Mode]]": ...
    @overload
    def returns(
        self, ref: GpuRef[Mode], second: GpuRef[Mode], /, *more: GpuRef[Mode]
    ) -> "Recording[Mode, tuple[GpuRef[Mode], ...]]": ...
    def returns(self, *refs: GpuRef[Mode]) -> "Recording[Mode, Any]":
        """Have :meth:`replay` give these arrays. Called inside the block.

        Returns:
            The recording itself. To type checkers :meth:`replay` returns these arrays there, and a reply without value
            elsewhere.

        Raises:
            TypeError: Not a ref.
            ShapeError: No op of the recording writes it.
        """
        taken = self._open("returns")
        for ref in refs:
            if not isinstance(ref, GpuRef):
                raise TypeError(f"returns: {type(ref).__name__} is not a GpuRef")
            if ref.allocation.id not in taken.written:  # reading the allocation records a deferred op
                raise ShapeError(f"returns: no op of the recording writes {ref.layout!r}")
            taken.check_block(ref, "returns")
        self._returned = refs
        return self

    def _open(self, what: str) -> OpRecorder:
        if self._recorder is None:
            raise RuntimeError(f"{what}() is called inside the block that records")
        return self._recorder

    # -- values that decide --------------------------------------------------------------------------------------------

    def if_(self, value: GpuRef[Mode]) -> AbstractContextManager[None]:
        """Ops that run where a value on the device is not 0. Called inside the block that records.

        ::

            with dev.record() as rec:
                with rec.if_(too_large):  # a 0-d array, looked at when the replay comes here
                    dev.blas.scal(x, alpha=0.5)
                with rec.else_():
                    dev.blas.scal(x, alpha=1.1)

        Arrays that ops inside make are there inside only; write to arrays made before (``out=``).

        Args:
            value: 0-d array of real numbers or of bool.

        Raises:
            ShapeError, TypeError, GpuRefStale: It is no such array, or cannot be used.
            ValueError: When the block ends, and no op was called in it.
        """
        return if_block(self._open("if_"), value)

    def else_(self) -> AbstractContextManager[None]:
        """Ops that run where the value of the :meth:`if_` directly before is 0."""
        return else_block(self._open("else_"))

    def while_(self, value: GpuRef[Mode], *, most: int | None = None) -> AbstractContextManager[GpuRef[Mode]]:
        """Ops that run again and again until a value on the device is 0. As :meth:`if_` otherwise.

        ::

            with rec.while_(unsettled, most=10_000) as turns:
                step(a, b), step(b, a), difference(a, b, out=unsettled)
            rec.returns(a, turns)

        The value is looked at before each turn. A loop whose value is never 0 does not end, and the device with it, so
        say ``most`` where that is not certain.

        Args:
            value: As of :meth:`if_`; ops inside write it.
            most: Turns at most.

        Returns:
            A context manager that gives a 0-d i64 array: how many turns have been done.
        """
        return while_block(self._open("while_"), self._port, value, most)

    def switch(self, value: GpuRef[Mode]) -> AbstractContextManager[Cases]:
        """Ops that run where a value on the device is their number, below 64. As :meth:`if_` otherwise.

        ::

            with rec.switch(mode) as case:
                with case(0):
                    dev.fill(x, 0)
                with case(2):
                    dev.copy(y, x)

        Args:
            value: 0-d array of integers. Where there is no case of its number, nothing runs.
        """
        return switch_block(self._open("switch"), value)

    # -- replaying -----------------------------------------------------------------------------------------------------

    def replay(self, n: int = 1, /, **inputs: "GpuRef[Mode] | ArrayLike") -> Result_co:
        """Run the recorded ops again, ``n`` times one after the other.

        While another recording of the device is open, record them there instead, on arrays of that recording, which
        then replays both as one (a child graph).

        Args:
            n: 1 to 10,000.
            inputs: Arrays by name (:attr:`inputs`), of the recorded shape and dtype. A ref takes the array's place,
                from this replay on, and has its strides; what NumPy understands is copied into the array.

        Returns:
            What :meth:`returns` named: a ref, or a tuple of refs, pending until the replay is done; a reply without
            value where nothing was named. The refs name the same memory after every replay.

        Raises:
            TypeError, ShapeError, DeviceMismatch: An input is unknown or does not fit; at the call.
            GpuRefStale: Arrays were lost with the context, or freed; names them.
            MailboxFull, DeviceStopped: At the call; nothing was sent.
        """
        if type(n) is not int or not 1 <= n <= MOST_REPLAYS:
            raise ValueError(f"n is {n!r}; one message replays 1 to {MOST_REPLAYS:,} times")
        result: Result_co = self._ready().run(n, inputs)
        return result

    def prepare(self, **inputs: "GpuRef[Mode] | ArrayLike") -> Reply[None]:
        """Make the plans and the graph now, and run nothing; :meth:`replay` does it on first use.

        Returns:
            A reply without value; awaiting it raises what cannot be recorded on this device.
        """
        reply: Reply[None] = self._ready().run(0, inputs)
        return reply

    @overload
    def replay_while(
        self: "Recording[Asynchronous, Any]",
        go: GpuRef[Asynchronous],
        /,
        most: int,
        every: int = 1,
        **inputs: "GpuRef[Asynchronous] | ArrayLike",
    ) -> Coroutine[Any, Any, int]: ...
    @overload
    def replay_while(
        self: "Recording[Blocking, Any]",
        go: GpuRef[Blocking],
        /,
        most: int,
        every: int = 1,
        **inputs: "GpuRef[Blocking] | ArrayLike",
    ) -> int: ...
    def replay_while(self, go: GpuRef[Any], /, most: int, every: int = 1, **inputs: Any) -> Any:
        """Replay until an array signals the end, such as an iteration until convergence.

        Args:
            go: 0-d array that the recorded ops write; replays go on while it is not 0.
            most: Replays at most.
            every: Replays between two looks at ``go``, which are one message. A look is a round trip to the device.
            inputs: As of :meth:`replay`, given once.

        Returns:
            How often it was replayed: a multiple of ``every``, or ``most``.

        Raises:
            ShapeError: ``go`` is not 0-d, or no op of the recording writes it.
        """
        made = self._ready().built
        if go.shape != () or go.allocation.id not in made.written:
            raise ShapeError(f"replay_while: go is {go.layout!r}; name a 0-d array that the recording writes")
        if not 1 <= every <= most:
            raise ValueError(f"replay_while: every is {every} and most is {most}; use 1 <= every <= most")
        return self._services._run(self._while(go, most, every, inputs))

    async def _while(self, go: GpuRef[Any], most: int, every: int, inputs: Mapping[str, Any]) -> int:
        done = 0
        while done < most:
            n = min(every, most - done)
            self._ready().run(n, inputs)
            done, inputs = done + n, {}
            if not await self._transfers.get(go, None):
                break
        return done

    def clone(self) -> "Recording[Mode, Result_co]":
        """Another recording of the same ops, on the same inputs, with separate output arrays.

        So its results are not overwritten by replays of this one, nor the other way round.

        Raises:
            GpuRefStale: Inputs were lost with the context, or freed; give :meth:`replay` others first.
        """
        named = {one.name: one.ref for one in self._ready().built.inputs if one.named}
        twin: Recording[Mode, Result_co] = Recording(self._port, self._transfers, self._services, named)
        with twin:
            made = self._ready().run(1, {})
            twin.returns(*(made if isinstance(made, tuple) else (made,) if isinstance(made, GpuRef) else ()))
        return twin

    # -- arrays --------------------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, Layout]:
        """The layouts of the arrays :meth:`replay` takes, by name. Unnamed arrays are ``in0``, ``in1`` and so on."""
        return {one.name: one.layout for one in self._ready().built.inputs if one.layout is not None}

    # -- what it tells, and its end ------------------------------------------------------------------------------------

    def dot(self, title: str = "recording") -> str:
        """Its nodes in the DOT language of Graphviz: ``dot -Tsvg``."""
        return dot(self.nodes, title)

    def svg(self, title: str = "recording") -> str:
        """Its nodes as a picture, an SVG document: a row for what can run at the same time. Notebooks show it."""
        return svg(self.nodes, title)

    _repr_svg_ = svg

    @overload
    def stats(self: "Recording[Asynchronous, Any]") -> Coroutine[Any, Any, RecordingStats]: ...
    @overload
    def stats(self: "Recording[Blocking, Any]") -> RecordingStats: ...
    def stats(self) -> Any:
        """Statistics of the recording in the context host. Raises as :meth:`callboard.Device.stats`."""
        return self._services._recording_stats(self._ready().built.handle.id)

    def close(self) -> None:
        """Give its memory and its graphs back; replays called before are not disturbed. Closing twice is harmless."""
        if self._replays is not None:
            self._replays.close()
            self._replays = None
            self._state = "closed"

    def _ready(self) -> Replays:
        if self._replays is None:
            raise RuntimeError(f"the recording is {self._state}")
        return self._replays

    def __repr__(self) -> str:
        return f"<Recording of {len(self.nodes)} ops on {self._port.name}{', ' + self._state if self._state else ''}>"
