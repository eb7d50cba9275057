"""``ResidentActor``: the base class of user actors beside the device; ``HostContext``: their environment."""

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from callboard.actors._runtime.table import check_handlers
from callboard.actors.handles import Handle
from callboard.actors.supervision import Directive, OneForOne, Strategy
from callboard.core.backend import AccelStream, DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.core.ref import GpuRef

if TYPE_CHECKING:
    import numpy as np

    from callboard.device.inside.device import LocalDevice

__all__ = ["HostContext", "ResidentActor", "check_options"]


class Thread(Protocol):
    """Requests of a context to the thread of its actor, in the host."""

    def make_current(self) -> None: ...
    def adopt(self, array: Any) -> Any: ...
    def host(self, array: Any) -> Any: ...
    def is_cancelled(self) -> bool: ...
    def device(self) -> "LocalDevice": ...


class ResidentActor:
    """Derive from it: your model, simulation or service, living in the context host of a device.

    ::

        class Embedder(cb.ResidentActor):
            def prepare(self) -> None:
                self.weights = np.load("weights.npy")

            def setup(self, ctx: cb.HostContext) -> None:
                self.model = torch.nn.Module(...).to(ctx.torch_device)

            def embed(self, texts: list[str]) -> list[np.ndarray]: ...


        emb = gpu.actor_of(cb.Props(Embedder), name="embedder")
        vectors = await emb.call(Embedder.embed, ["hello"])

    Methods are plain functions; each actor has a thread of its own and runs one at a time, in the order of the calls.
    Arguments and results are plain values (the types that msgspec supports), NumPy arrays, and device arrays: a
    ``GpuRef`` arrives as a view that is valid until the method returns (a NumPy array on a CPU, a ``DeviceView`` on
    CUDA). Returned, ``ctx.ref(array)`` arrives as a ``GpuRef``, and ``ctx.host(array)`` as a NumPy array. A parameter
    annotated ``cb.In`` is read only; every other device array may be written, and is invalid after a failure of the
    method.

    A method may begin before it is known that the op of an argument fails. Its call then fails with the op's error, and
    what the method has changed in the actor stays. Await the op before the call where that matters.

    Methods may be ``async def``. The actor then has an event loop on its thread, where up to ``max_concurrency``
    coroutines run at once; plain methods run there between their awaits. Calls begin in order. One that may write a
    device array waits for the calls that use it, and one that reads it for those that may write it. When the actor is
    stopped or restarted, running coroutines are cancelled.

    A method that yields is called with ``stream`` in place of ``call``; see :class:`callboard.Stream`.

    An actor that is started with ``own_process=True`` has a process and a context of its own. When these are lost, it
    is restarted, as often as after failures, which are counted apart. It gets a ``GpuRef`` when the operations before
    are done, on a CPU as a copy that is written back when the method has returned.

    Processes that an actor in a host process starts end with that. If the application is killed, they continue, unless
    the device was opened with ``guardian=True``. Functions that it registers with :mod:`atexit` run when its host is
    closed in order, for 2 s at most, after the last call; not when the host is killed or its context is lost. The
    device's context still exists then (for torch, for example), but ``ctx`` cannot be used any more.

    An exception that a method raises, also ``SystemExit`` or ``KeyboardInterrupt``, is an *answer*: the caller gets it,
    the actor stays as it is. A ``setup`` that fails restarts the actor within the budget of ``supervision``. A class
    asks for restarts after its methods' exceptions with a strategy of its own::

        supervision = cb.OneForOne({ModelError: cb.Directive.RESTART, Exception: cb.Directive.RESUME}, max_restarts=3)

    An ``AccelError`` (``ReplyError``, ``OutOfMemory`` …) and any other out-of-memory error is an answer, whatever the
    strategy.

    Class attributes:
        supervision: The exceptions that restart or stop the actor (RESUME: the exception is an answer), and the number
            of restarts allowed; one more stops this actor only. The rule for ``Exception`` holds for ``SystemExit`` and
            the like, too, unless a rule names them. There is no parent to escalate to: an exception that the rules do
            not cover restarts the actor.
        max_concurrency: Coroutines of async methods that run at once; further calls wait.
        max_in_flight: Calls without an answer before a further one raises ``MailboxFull``.
        overflow: The policy for a further call: ``"fail"``, or ``"drop_old"``, which accepts it and fails the oldest
            waiting call with ``MailboxFull`` (for frames of a camera, for example, of which only the newest matter).
    """

    supervision: ClassVar[Strategy] = OneForOne({Exception: Directive.RESUME}, max_restarts=3, within=60.0)
    max_concurrency: ClassVar[int] = 32
    max_in_flight: ClassVar[int] = 1024
    overflow: ClassVar[Literal["fail", "drop_old"]] = "fail"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_handlers(cls)
        check_options(cls)

    def prepare(self) -> None:
        """Imports and weights in host memory; no device.

        Also runs in the standby, in advance, and again for each new instance after a restart.
        """

    def warm_up(self, ctx: "HostContext") -> None:
        """Do a first call's work in a hot standby, before it takes over: load what packages load when it is first used.

        Where a class has none, the first call after a loss loads torch's context, cuBLAS and the kernels. Mostly this
        suffices::

            def warm_up(self, ctx):
                self.setup(ctx)
                self.embed(["a sample"])

        It runs on a thread and a stream of its own, on one more instance that has prepared and is dropped afterwards:
        nothing of it is left in the instance that takes over, which :meth:`setup` builds as always. Meanwhile it takes
        memory beside the context that serves; where less than a tenth of the device's memory is free, it is not called.
        If it fails, a warning is logged, and the standby is used without. A takeover does not wait for it, and a
        standby whose ``warm_up`` takes longer than the device's ``step_timeout`` counts as ready. It may be async.

        Args:
            ctx: The standby's context, as for :meth:`setup`; its ``generation`` is 0.
        """

    def setup(self, ctx: "HostContext") -> None:
        """Called once for each instance, and so in each generation, before the first method.

        Calls wait for it, the device does not.

        Args:
            ctx: The device, with :attr:`HostContext.stream` current for torch, CuPy and Warp as soon as they are
                imported.
        """


def check_options(cls: Any) -> None:
    """Check the class attributes of a resident actor.

    Raises:
        TypeError: One has a wrong type.
        ValueError: One has a value that it may not have.
    """
    for name in ("max_concurrency", "max_in_flight"):
        value = getattr(cls, name)
        if not isinstance(value, int | float):
            raise TypeError(f"{cls.__qualname__}.{name} must be a number of calls, but is {value!r:.80}")
        if not value >= 1:
            raise ValueError(f"{cls.__qualname__}.{name} must be at least 1, but is {value}")
    if cls.overflow not in ("fail", "drop_old"):
        raise ValueError(f"{cls.__qualname__}.overflow must be 'fail' or 'drop_old', but is {cls.overflow!r:.80}")
    if not isinstance(cls.supervision, Strategy):
        raise TypeError(
            f"{cls.__qualname__}.supervision must be a strategy such as cb.OneForOne(...), but is "
            f"{cls.supervision!r:.80}"
        )


class HostContext(Handle):
    """The device in the view of a resident actor. For the actor's own thread.

    Attributes:
        info: Description of the device.
        name: Name of the actor.
        stream: The actor's stream; ``stream.native`` is the vendor's handle. Work enqueued on it is ordered with the
            ops of the device that share the actor's arrays; work on other streams must be joined to it.
        ordinal: Ordinal of the device in this process.
        generation: Generation of the context: greater than that of any context opened before it.
    """

    def __init__(
        self, thread: Thread, device: DeviceInfo, name: str, stream: AccelStream, ordinal: int, generation: int
    ) -> None:
        self._thread = thread
        self._stream = stream
        self.info = device
        self.name = name
        self.ordinal = ordinal
        self.generation = generation

    @property
    def stream(self) -> AccelStream:
        self._thread.make_current()  # the package that asks may have been imported a line before
        return self._stream

    @property
    def device(self) -> "LocalDevice":
        """The libraries of the device, called here: ``ctx.device.blas.gemm(a, b)``, without a message in between."""
        return self._thread.device()

    @property
    def is_cuda(self) -> bool:
        """True if it runs on a CUDA device."""
        return self.info.compute_capability != (0, 0)

    @property
    def torch_device(self) -> Any:
        """``torch.device("cuda:0")``, or the CPU; the actor's stream is torch's current one from here on.

        Raises:
            BackendUnavailable: torch has not been imported.
        """
        torch = sys.modules.get("torch")
        if torch is None:
            raise BackendUnavailable("torch is not imported; import it in prepare() or at the top of your module")
        self._thread.make_current()
        return torch.device("cuda", self.ordinal) if self.is_cuda else torch.device("cpu")

    def cancelled(self) -> bool:
        """True if the current call is no longer wanted: it was cancelled, or its time limit has passed.

        A long method checks it from time to time, and may return or raise anything. Work that it has done stays.
        """
        return self._thread.is_cancelled()

    def host(self, array: Any) -> "np.ndarray[Any, Any]":
        """Have the caller get a NumPy array with the items of an array on the device.

        The items are copied when the method returns, directly to page-locked memory that the caller reads: for more
        than 64 KiB, ``return ctx.host(model(x))`` takes less time than ``return model(x).cpu().numpy()``. Smaller
        tensors of torch are copied at once. The copy waits for the work that was enqueued on :attr:`stream` before.

        Args:
            array: An array as for :meth:`ref`, a ref of :attr:`device`, or an array that the caller passed to the
                method. Do not write to it until the method has returned.

        Returns:
            An object to be returned, itself or inside lists, tuples, dicts … (it is not an array here).

        Raises:
            TypeError: No array of this device, or a dtype that no device holds.
        """
        sent: Any = self._thread.host(array)
        return sent  # type: ignore[no-any-return]

    def ref(self, array: Any) -> GpuRef:
        """Turn an array of the actor into one of the device: returned from a method, it arrives as a ``GpuRef``.

        The array is kept alive until all refs to it in the application have been freed. It is the same memory: the
        caller reads later writes of the actor. Returning the same object again returns the same buffer. From a process
        of the actor's own (``own_process=True``) it is a copy, made when the method returns.

        Args:
            array: An array of torch, CuPy, Warp, Numba or another package on the device, computed on :attr:`stream`; on
                a CPU device, a NumPy array or a CPU tensor. Any strides.

        Returns:
            An object to be returned, itself or inside lists, tuples, dicts … (it is no ``GpuRef`` yet).

        Raises:
            TypeError: No array of this device, or a dtype that no device holds.
            ValueError: The array is, or is part of, an array that the caller passed in: that memory belongs to the
                caller.
        """
        adopted: Any = self._thread.adopt(array)
        return adopted  # type: ignore[no-any-return]
