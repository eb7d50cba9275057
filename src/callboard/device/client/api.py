"""``DeviceApi``: the methods that the async handle of a device and the blocking one of ``cb.sync`` share."""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from callboard.actors.handles import Handle
from callboard.core import plugins
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.layout import shape_of
from callboard.core.mode import Asynchronous, Mode
from callboard.core.op import Op
from callboard.core.operand import StructOperand
from callboard.core.ref import GpuRef
from callboard.core.ref.suggestions import unknown_name
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING
from callboard.core.reply import Reply
from callboard.device.client.graphs import Recording
from callboard.device.client.line.interop import Interop, is_foreign
from callboard.device.client.line.transfers import Transfers
from callboard.kernel.api import Submit
from callboard.kernel.event.handle import DeviceTime
from callboard.kernel.memory import Copy, Empty, Fill

if TYPE_CHECKING:
    from callboard.arrays.namespace import Namespace
    from callboard.kernel.array.api import ArrayApi
    from callboard.kernel.attention.api import AttentionApi
    from callboard.kernel.blas.api import BlasApi
    from callboard.kernel.blas_lt.api import BlasLtApi
    from callboard.kernel.collective.api import CollectiveApi
    from callboard.kernel.cub.api import CubApi
    from callboard.kernel.cutlass.api import CutlassApi
    from callboard.kernel.dnn.api import DnnApi
    from callboard.kernel.elementwise.api import ElementwiseApi
    from callboard.kernel.engine.api import EngineApi
    from callboard.kernel.event.api import EventApi
    from callboard.kernel.fft.api import FftApi
    from callboard.kernel.ipc.api import IpcApi
    from callboard.kernel.managed.api import ManagedApi
    from callboard.kernel.module.api import ModuleApi
    from callboard.kernel.nvrtc.api import NvrtcApi
    from callboard.kernel.rng.api import RngApi
    from callboard.kernel.solver.api import SolverApi
    from callboard.kernel.sparse.api import SparseApi
    from callboard.kernel.sparse_lt.api import SparseLtApi
    from callboard.kernel.tensor.api import TensorApi
    from callboard.numpylike.namespace import Numpy
    from callboard.scipylike.namespace import Scipy
    from callboard.telemetry.profiling.profile import Profile

__all__ = ["DeviceApi", "Shape"]

Array = np.ndarray[Any, Any]
Shape = int | Sequence[int]

A = TypeVar("A")
R = TypeVar("R")
Refs = TypeVar("Refs", bound="tuple[Any, ...] | StructOperand")
"""Several refs at once."""


class DeviceApi(Handle, Generic[Mode]):
    """Messages, memory, and the methods of the libraries.

    Each library is an attribute, made on first use: those below, and every other one that is installed
    (:mod:`callboard.core.plugins`).

    Attributes:
        array: Arrays of host values; elements converted, gathered, scattered.
        attention: Attention, its gradients, keys and values in pages.
        blas: BLAS ops.
        blas_lt: Fused matrix products, fp8.
        collective: One rank's part of collectives; use :class:`callboard.World` instead.
        cub: Reductions, scans, sorts, selections, histograms.
        cutlass: Products and convolutions with epilogues of one's own.
        dnn: Deep learning: convolutions, pooling, norms, losses, recurrent networks.
        elementwise: Expressions on elements, and reductions of them.
        engine: ONNX models as plans: ONNX Runtime, or the ops of this device.
        event: Events.
        fft: Fourier transforms.
        ipc: Memory shared with other processes.
        managed: Managed memory.
        module: Precompiled kernels.
        nvrtc: Your own kernels in CUDA C++.
        rng: Random numbers.
        solver: Linear algebra.
        sparse: Sparse matrices.
        sparse_lt: Matrices with 2:4 sparsity.
        tensor: Contractions and elementwise ops by modes.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    if TYPE_CHECKING:
        array: ArrayApi[Mode]
        attention: AttentionApi[Mode]
        blas: BlasApi[Mode]
        blas_lt: BlasLtApi[Mode]
        collective: CollectiveApi[Mode]
        cub: CubApi[Mode]
        cutlass: CutlassApi[Mode]
        dnn: DnnApi[Mode]
        elementwise: ElementwiseApi[Mode]
        engine: EngineApi[Mode]
        event: EventApi[Mode]
        fft: FftApi[Mode]
        ipc: IpcApi[Mode]
        managed: ManagedApi[Mode]
        module: ModuleApi[Mode]
        nvrtc: NvrtcApi[Mode]
        rng: RngApi[Mode]
        solver: SolverApi[Mode]
        sparse: SparseApi[Mode]
        sparse_lt: SparseLtApi[Mode]
        tensor: TensorApi[Mode]

    _port: Any
    _peer: Any

    def __init__(self, submit: Submit, transfers: Transfers, interop: Interop) -> None:
        self._submit = submit
        self._transfers = transfers
        self._interop = interop

    # -- libraries -----------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            api = plugins.api_class(name)
        except KeyError:
            there = ", ".join(plugins.library_names())
            told = f"a device has no {name!r}; its libraries are {there}"
            raise unknown_name(told, name, dir(self), self) from None
        return self.__dict__.setdefault(name, self.library(api))  # all threads get the same one

    @property
    def xp(self) -> "Namespace[Mode]":
        """The functions of the array API 2025.12 on this device: ``xp.exp(x)``, ``xp.mean(x, axis=0)``."""
        namespace: Namespace[Mode] = self._port.services.xp
        return namespace

    @property
    def np(self) -> "Numpy":
        """NumPy's names, parameters and defaults on this device: ``np.sum(x, 0)``, ``np.linalg.norm(x)``."""
        namespace: Numpy = self._port.services.np
        return namespace

    @property
    def scipy(self) -> "Scipy":
        """SciPy's names and parameters on this device: ``scipy.signal.fftconvolve(a, b)``, ``scipy.special.erf(x)``."""
        from callboard.scipylike.namespace import Scipy  # with many functions

        return Scipy(self.np)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *plugins.library_names()})

    def library(self, api: Callable[[Submit, Callable[[Any], Any]], A]) -> A:
        """The methods of a library, typed: ``device.library(ImageApi).blur(a)`` is ``device.image.blur(a)``.

        Args:
            api: The library's class of methods (for a blocking device ``ImageApi[Blocking]``).
        """
        return api(self._submit, self.put)

    # -- messages ------------------------------------------------------------------------------------------------------

    @overload
    def ask(self, op: Op[Any, GpuRef]) -> GpuRef[Mode]: ...
    @overload
    def ask(  # type: ignore[overload-overlap]  # several refs are not a reply themselves; the first that fits counts
        self: "DeviceApi[Asynchronous]", op: Op[Any, Refs]
    ) -> Refs: ...
    @overload
    def ask(self, op: "Op[Any, tuple[Any, ...] | StructOperand]") -> Any: ...  # messages have no blocking refs
    @overload
    def ask(self, op: Op[Any, R]) -> Reply[R]: ...
    def ask(self, op: Op[Any, Any]) -> Any:
        """Submit an op given as a message and return its reply at once: a ref, a tuple of refs or a :class:`Reply`.

        Type checkers take the reply type from the message's class. Where that is a number and the message has an
        ``out``, the reply is that ref.

        Raises:
            ShapeError, UnsupportedOp, DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped: At the call; nothing was
                sent.
        """
        return self._submit(op)

    def tell(self, op: Op[Any, Any]) -> None:
        """Submit an op without a reply; a failure becomes a dead letter. Raises as :meth:`ask`."""
        self._submit(op)

    # -- time ----------------------------------------------------------------------------------------------------------

    def time(self) -> DeviceTime[Mode]:
        """Measure the device's time for the ops called in a block.

        ::

            with dev.time() as t:
                for _ in range(100):
                    c = dev.blas.gemm(a, b)
            seconds = await t  # t.result() without a loop

        The block's first op begins when all ops called before are done, and the time ends when all of the block's are:
        queues and waits inside count, the earlier work and the way there do not. Ops of other tasks in the
        meantime are measured, too. Plans are made on the first call, so call the measured ops once before.

        Raises:
            MailboxFull, DeviceStopped: When the block is entered or left.
        """
        return DeviceTime(self._submit)

    # -- recordings ----------------------------------------------------------------------------------------------------

    @overload
    def record(self, **inputs: GpuRef[Mode]) -> Recording[Mode, Reply[None]]: ...
    @overload
    def record(
        self, __op: Op[Any, GpuRef], *ops: Op[Any, GpuRef], **inputs: GpuRef[Mode]
    ) -> Recording[Mode, GpuRef[Mode]]: ...
    @overload
    def record(self, *ops: Op[Any, Any], **inputs: GpuRef[Mode]) -> Recording[Mode]: ...
    def record(self, *ops: Op[Any, Any], **inputs: GpuRef[Mode]) -> Recording[Mode, Any]:
        """A recording of ops, to be replayed as one (:class:`callboard.Recording`).

        Args:
            ops: Messages to record, in order; a replay returns the reply of the last one. Without any, the
                recording is a context manager that records the ops of this device that are called in its block, by the
                task or thread that entered it.
            inputs: Arrays that a replay can replace, by the names of its keywords.

        Raises:
            TypeError, GpuRefStale, DeviceMismatch: An input is not a ref that this device can use.
            UnsupportedOp, ShapeError: A message cannot be recorded.
        """
        recording: Recording[Mode] = Recording(self._transfers.port, self._transfers, self, inputs)
        if ops:
            answer: Any = None
            with recording:
                for op in ops:
                    answer = self._submit(op)
                answers = answer if isinstance(answer, tuple) else (answer,)
                recording.returns(*(ref for ref in answers if isinstance(ref, GpuRef)))
        return recording

    def profile(self) -> "Profile":
        """Measure all ops of a block: ``async with gpu.profile() as profile``, then ``print(profile)``.

        ``with`` for a device of :mod:`callboard.sync`. ``profile.save(path)`` writes a trace file for Perfetto; a
        notebook shows a flame picture.
        """
        from callboard.telemetry.profiling.profile import Profile

        opened: Any = getattr(self, "_device", self)
        return Profile(opened, self._run if opened is not self else None)

    def _patiently(self, call: Callable[[], A]) -> A:
        return call()

    def _run(self, coroutine: Coroutine[Any, Any, A]) -> Any:
        return coroutine

    def _recording_stats(self, recording: int) -> Any:
        raise NotImplementedError

    # -- memory --------------------------------------------------------------------------------------------------------

    def put(
        self,
        array: Any,
        *,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        out: GpuRef[Mode] | None = None,
    ) -> GpuRef[Mode]:
        """Copy a host array to the device, or an array of another device.

        Args:
            array: A ref of another device, copied as :meth:`GpuRef.to <callboard.GpuRef.to>` describes, or any value
                that NumPy accepts, of a supported dtype, any strides. An array of :meth:`host_empty` is read by the
                device directly and must stay unchanged until the reply. An array of another package on the device
                itself is taken without a copy, as in :meth:`adopt`.
            dtype: Convert first.
            non_blocking: Copy off the calling thread; ``array`` must stay unchanged until the reply. Later calls queue
                behind it.
            out: Array or view of the device to copy to, of the same dtype and shape; a new array when None. Rows at a
                pitch, in slices, are one transfer (``cuMemcpy2DAsync``, ``cuMemcpy3DAsync``); arrays with shorter rows
                or more axes are packed first.

        Returns:
            ``out``, or a row-major array of the same shape. ``array`` has been read when this returns, unless said
            otherwise above. An array above ``max_staged_bytes`` is transferred in parts; without ``non_blocking`` it is
            copied first, or waited for on a device of :mod:`callboard.sync`.

        Raises:
            TypeError: A dtype that no device holds, or an array of another device under process isolation.
            ShapeError: ``out`` does not fit.
            MailboxFull: ``max_in_flight`` ops or ``max_staged_bytes`` wait. Nothing was called.
            GpuRefStale, UnsupportedOp: ``array`` is a ref that cannot be used, or a recording is open.
        """
        if isinstance(array, GpuRef):
            copied: GpuRef[Mode] = self._peer.put(array, dtype, out)
            return copied
        if is_foreign(array):
            ref = self._adopted(array, dtype)
            return ref if out is None else self.copy(ref, out)
        return self._transfers.put(array, dtype, non_blocking, out)

    def adopt(self, array: Any) -> GpuRef[Mode]:
        """Import an array of torch, CuPy, NumPy (CPU) … as a ref, without a copy; thread isolation only.

        The array is kept alive until the buffer is freed. Ops called afterwards wait for the work of the array's owner
        before this call, not for later work of the owner. An array of JAX is immutable and therefore copied.

        Raises:
            TypeError: Process isolation, another device, no array, a dtype or strides that no ref has, read-only or
                masked; or a method of the array has raised an exception, which is the cause.
            BufferError: Ops called before cannot be sent yet (no context is ready): await :meth:`ready` first.
        """
        ref: GpuRef[Any] = self._interop.adopt(array)
        return ref

    def _adopted(self, array: Any, dtype: DTypeLike | None) -> GpuRef[Mode]:
        ref = self.adopt(array)
        if dtype is not None and ref.dtype is not as_dtype(dtype):
            raise TypeError(f"put: the array is {ref.layout!r} on the device and stays so; convert it to {dtype} first")
        return ref

    def empty(self, shape: Shape, dtype: DTypeLike = "f32") -> GpuRef[Mode]:
        """A new array, not initialised."""
        return self._submit(Empty(shape=shape_of(shape), dtype=as_dtype(dtype).name))  # type: ignore[no-any-return]

    def full(self, shape: Shape, value: complex, dtype: DTypeLike = "f32") -> GpuRef[Mode]:
        """A new array with every element ``value``."""
        out: GpuRef[Mode] = self._submit(Empty(shape=shape_of(shape), dtype=as_dtype(dtype).name))
        return self._submit(Fill(out=out, fill_value=value))  # type: ignore[no-any-return]

    def zeros(self, shape: Shape, dtype: DTypeLike = "f32") -> GpuRef[Mode]:
        """A new array of zeros."""
        out: GpuRef[Mode] = self._submit(Empty(shape=shape_of(shape), dtype=as_dtype(dtype).name))
        return self._submit(Fill(out=out, fill_value=0.0))  # type: ignore[no-any-return]

    def fill(self, out: GpuRef[Mode], value: complex) -> GpuRef[Mode]:
        """Set every element of ``out``; returns ``out``, pending on this op."""
        return self._submit(Fill(out=out, fill_value=value))  # type: ignore[no-any-return]

    def copy(self, src: GpuRef[Mode], out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``out = src`` on the device, any strides; a new row-major array when ``out`` is None."""
        return self._submit(Copy(src=src, out=out))  # type: ignore[no-any-return]

    @overload
    def memcpy(self, dst: GpuRef[Mode], src: GpuRef[Mode] | Array) -> GpuRef[Mode]: ...
    @overload
    def memcpy(self: "DeviceApi[Asynchronous]", dst: Array, src: GpuRef[Any]) -> Reply[Array]: ...
    @overload
    def memcpy(self, dst: Array, src: GpuRef[Mode]) -> Any: ...
    def memcpy(self, dst: Any, src: Any) -> Any:
        """Copy between arrays, each on the host or the device, in program order; returns ``dst``, pending on this op.

        One name for :meth:`copy`, ``put(src, out=dst)`` and ``src.get(out=dst)``. Views make it two- and
        three-dimensional: ``dev.memcpy(image[10:20, 30:50], tile)`` copies rows at a pitch. Nothing is copied on the
        host if that side is an array of :meth:`host_empty` or of a pinned pool, which then must stay unchanged until
        the reply.

        Args:
            dst, src: A ref or a NumPy array each, at least one of them a ref; of one dtype and shape, any strides.

        Raises:
            ShapeError: They do not fit.
            TypeError: Neither is a ref.
        """
        if isinstance(dst, GpuRef):
            return self.copy(src, dst) if isinstance(src, GpuRef) else self.put(src, out=dst)
        if isinstance(src, GpuRef):
            return src.get(dst)
        raise TypeError(f"memcpy: dst is {type(dst).__name__} and src {type(src).__name__}; one of them is a GpuRef")

    def memset(self, out: GpuRef[Mode], byte: int) -> GpuRef[Mode]:
        """Set every byte of ``out`` to ``byte``; returns ``out``, pending on this op. :meth:`fill` sets elements.

        Args:
            out: Any dtype; a view of any strides whose last axis is adjacent (rows at a pitch, in slices …).
            byte: 0 to 255.

        Raises:
            ShapeError: Another value of ``byte``, or a layout that is not supported.
        """
        octets = out.reinterpret(as_dtype("u8")) if out.ndim else out.reshape(1).reinterpret(as_dtype("u8"))
        self._submit(Fill(out=octets, fill_value=byte))
        return out

    def view(self, ref: GpuRef[Mode], shape: Shape | None = None, dtype: DTypeLike | None = None) -> GpuRef[Mode]:
        """A view of the same memory: reshaped, or with its bytes taken as another dtype (last axis rescaled).

        Raises:
            ShapeError: The strides or the extents allow no such view.
        """
        if dtype is not None:
            ref = ref.reinterpret(as_dtype(dtype))
        return ref if shape is None else ref.reshape(*shape_of(shape))

    def host_view(self, ref: GpuRef[Mode]) -> Array:
        """An array of managed memory, or any array of a CPU device, as a NumPy array of the same memory.

        It waits for earlier ops that use the array, and pins the array as long as the NumPy array lives. Wait for later
        ops before the host reads data that they write, or writes data that they read. A call of a resident actor treats
        managed memory like any other device array, under every isolation.

        Raises:
            BufferError: Process isolation: the memory is in another process; or it is other memory of a GPU.
            AccelError: The op that writes the array has failed.
        """
        return self._interop.host_view(ref)

    def host_empty(self, shape: Shape, dtype: DTypeLike = "f32") -> Array:
        """A leased, page-locked host array: ``put`` and ``get(out=...)`` move it without a copy on the host.

        It is an ordinary NumPy array; its memory is reused when the array and all its views have been dropped.

        Raises:
            MailboxFull: ``max_staged_bytes`` is reached, or is less than the array (then it is not ``retryable``).
        """
        return self._transfers.host_empty(shape_of(shape), as_dtype(dtype))
