"""Plans of our own kernels: every feature, dtype and head dim, by CUDA cores."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.attention.arguments import (
    POINTERS,
    AttentionArgs,
    arguments,
    lse_steps,
    names_of,
    steps,
)
from callboard.backends.cuda.launching import kernel_launcher
from callboard.core.dtype import DType
from callboard.core.errors import UnsupportedOp
from callboard.core.library import plans
from callboard.kernel.attention import Backward, BackwardBias, BackwardSink, Forward, PagedForward
from callboard.kernel.attention.problem import lse_dtype, tensor_of
from callboard.kernel.attention.scores import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.checking import Checking
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.readback import CudaStatus
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["OwnBackward", "OwnForward", "OwnSink", "room_needed", "sinks_launcher"]

THREADS, TILE, ACROSS, WARPS = 128, 16, 32, 4
"""Launch parameters of the kernels."""
DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
WIDTHS = (1, 2, 4, 8, 16)
"""Columns that a lane may have, 32 apart."""
MOST_BLOCKS = (1 << 31) - 1

Launch = Callable[[int], None]


def width(dim: int) -> int:
    """Columns of a lane for a head dim."""
    return next(n for n in WIDTHS if n * ACROSS >= dim)


def room_needed(dtype: DType, dim: int, dim_v: int, *, backward: bool) -> int:
    """Bytes of shared memory that a block takes."""
    wide = lse_dtype(dtype).itemsize
    padding = [d + (2 - d % 2 if dtype.itemsize == 2 else 1) for d in (dim, dim_v)]
    rows = TILE * (dim + dim_v if backward else dim)
    return rows * wide + ACROSS * sum(padding) * dtype.itemsize + 16


class Bound:
    """Base of the plans: binds operands to kernel arguments and checks lengths first."""

    executed_by: ClassVar[str] = "callboard"

    def __init__(self, library: "CudaAttention", op: Any, args: AttentionArgs, checking: "Checking | None") -> None:
        self._args = args
        self._driver = library.device.driver
        self._kernels = library.device.kernels
        self._checking = checking
        self._library = library
        self._places = [POINTERS.get(name) or self._renamed(name) for name in names_of(op)]

    def _renamed(self, name: str) -> str:
        return name

    def _bind(self, operands: tuple[Any, ...]) -> None:
        args = self._args
        for place, value in zip(self._places, operands, strict=True):
            setattr(args, place, value)

    def launcher(self, source: str, name: str, blocks: int, room: int = 0) -> Launch:
        """A function that launches a kernel with the arguments as they are then; compiles now."""
        if blocks > MOST_BLOCKS:
            raise UnsupportedOp(f"cuda, attention: {blocks} blocks are needed; a launch has at most {MOST_BLOCKS}")
        function = self._kernels.get(source, name)
        if room > 48 << 10:
            self._driver.func_set_attribute(function, DYNAMIC_SHARED, room)
        return kernel_launcher(self._driver, function, blocks, (THREADS, 1), self._args, room)

    def close(self) -> None:
        """Free the memory."""
        if self._checking is not None:
            self._checking.close()


class OwnForward(Bound):
    """A plan of ``Forward`` and of ``PagedForward``: ``plan(stream, *operands)``."""

    def __init__(
        self, library: "CudaAttention", op: "Forward | PagedForward", checking: "Checking | None" = None
    ) -> None:
        problem = op.problem()
        args = arguments(op, problem)
        super().__init__(library, op, args, checking)
        dtype = problem.dtype
        tiles = -(-problem.seq_q // TILE) * problem.heads * problem.batch
        room = room_needed(dtype, problem.dim, problem.dim_v, backward=False)
        source = f"attention-{dtype}-N={width(problem.dim_v)}"
        self._steps: list[Launch] = []
        if args.rows_q and problem.ragged:
            rows = -(-args.rows_q * problem.heads // WARPS)
            self._steps.append(self.launcher(source, "attention_blank", rows))
        if tiles:
            self._steps.append(self.launcher(source, "attention_forward", tiles, room))

    def __call__(self, stream: "CudaStream", *operands: Any) -> "CudaStatus | None":
        self._bind(operands)
        status = None if self._checking is None else self._checking(stream, self._args)
        for step in self._steps:
            step(stream.native)
        return status


class OwnBackward(Bound):
    """A plan of ``Backward`` and ``BackwardBias``: ``plan(stream, *operands)``."""

    def __init__(
        self, library: "CudaAttention", op: "Backward | BackwardBias", checking: "Checking | None" = None
    ) -> None:
        problem = op.problem()
        args = arguments(op, problem)
        super().__init__(library, op, args, checking)
        dtype = problem.dtype
        source = f"attention_gradients-{dtype}-N={width(max(problem.dim, problem.dim_v))}"
        room = room_needed(dtype, problem.dim, problem.dim_v, backward=True)
        queries = problem.batch * problem.heads * problem.seq_q
        self._lease = library.workspace.lease(max(1, queries * lse_dtype(dtype).itemsize))
        args.delta = self._lease.memory.address
        self._steps: list[Launch] = []
        if problem.ragged and max(args.rows_q, args.rows_k):
            rows = -(-max(args.rows_q, args.rows_k) // WARPS)
            self._steps.append(self.launcher(source, "attention_blank_gradients", rows))
        if queries:
            self._steps.append(self.launcher(source, "attention_delta", -(-queries // WARPS)))
            tiles = -(-problem.seq_q // TILE) * problem.heads * problem.batch
            self._steps.append(self.launcher(source, "attention_queries", tiles, room))
        keys = -(-problem.seq_k // TILE) * problem.kv_heads * problem.batch
        if keys:
            self._steps.append(self.launcher(source, "attention_keys", keys, room))
        if isinstance(op, BackwardBias) and op.bias.size:
            self._steps.append(self.launcher(source, "attention_bias", -(-op.bias.size // THREADS)))

    def _renamed(self, name: str) -> str:
        return {"out": "out_in", "lse": "lse_in"}[name]

    def __call__(self, stream: "CudaStream", *operands: Any) -> "CudaStatus | None":
        self._bind(operands)
        status = None if self._checking is None else self._checking(stream, self._args)
        for step in self._steps:
            step(stream.native)
        return status

    def close(self) -> None:
        super().close()
        self._library.workspace.leave(self._lease)


@plans(BackwardSink)
class OwnSink:
    """A plan of ``BackwardSink``: ``plan(stream, dout, out, lse, sink, dsink)``."""

    executed_by: ClassVar[str] = "callboard"

    def __init__(self, library: "CudaAttention", op: BackwardSink) -> None:
        op.infer()
        one = tensor_of(op, "out", op.out.layout, op.layout)
        args = self._args = AttentionArgs(
            batch=one.batch,
            heads=one.heads,
            rows_q=one.rows,
            dim_v=one.dim,
            out_at=steps(op, "out", op.out.layout, op.layout),
            dout_at=steps(op, "dout", op.dout.layout, op.layout),
            lse_at=lse_steps(op.lse.layout),
        )
        driver = library.device.driver
        function = library.device.kernels.get(f"attention_gradients-{op.out.dtype}-N=1", "attention_sink")
        self._launch = kernel_launcher(driver, function, one.heads, (THREADS, 1), args, 8 * WARPS)

    def __call__(self, stream: "CudaStream", dout: int, out: int, lse: int, sink: int, dsink: int) -> None:
        args = self._args
        args.dout, args.out_in, args.lse_in, args.sink, args.dsink = dout, out, lse, sink, dsink
        self._launch(stream.native)


def sinks_launcher(library: "CudaAttention", args: AttentionArgs, problem: Problem) -> Launch:
    """A function that adds sinks to a result that was computed without; compiles now."""
    function = library.device.kernels.get(f"attention-{problem.dtype}-N=1", "attention_sinks")
    rows = problem.batch * problem.heads * problem.seq_q
    return kernel_launcher(library.device.driver, function, -(-rows // WARPS), (THREADS, 1), args)
