"""The largest elements on a GPU: a radix selection for each row; many of them by CUB's sort."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cub import sorting
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.dnn.kernels import arguments, faults, kernel, made, types
from callboard.backends.cuda.dnn.rows import RowsIn, moved_last
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.library import plans
from callboard.core.operand import Placeholder
from callboard.kernel import cub
from callboard.kernel.dnn.embedding import wrong_rows
from callboard.kernel.dnn.top_k import TopK, TopKBackward

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["MoveArgs", "TopKArgs", "backward", "forward"]

TopKArgs = arguments("Args", p="x values indices", i="rows length x_row k")
"""``Args`` of ``data/dnn_topk.cu``."""
MoveArgs = arguments("Args", p="x indices out fault", i="rows k length")
"""``Args`` of ``data/dnn_moves.cu``."""

KEYS = {"f16": "u16", "bf16": "u16", "f32": "u32", "f64": "u64"}
MOST = 2048
"""Elements that a block sorts in its shared memory."""
LONGEST = 1 << 31


@plans(TopK)
def forward(library: "CudaDnn", op: TopK) -> Any:
    """A plan: called with ``(x, values, indices)``."""
    steps, axis = PlanMemory(library), op.axis % op.x.ndim
    values, indices = (moved_last(made(op, name), axis) for name in ("values", "indices"))
    x = moved_last(op.x.layout, axis)
    if not values.size:
        return steps.work(nothing)
    if op.k > MOST or x.shape[-1] >= LONGEST:
        return _sorted(library, op, x, values, indices)
    rows, length = x.size // x.shape[-1], x.shape[-1]
    given, deliver = RowsIn(steps, x), [steps.delivered(one) for one in (values, indices)]
    args = TopKArgs(rows=rows, length=length, x_row=given.step, k=op.k)
    threads = max(32, min(1024, 1 << (length // 4).bit_length()))
    defined = {
        **types(x.dtype, 1), "KEY": KEYS[x.dtype.name], "KEYS": max(2, 1 << (op.k - 1).bit_length()),
        "LARGEST": int(op.largest), "THREADS": threads,
    }  # fmt: skip
    run = kernel(steps.device, "dnn_topk", defined, "top_k", args, rows, threads)

    def enqueue(native: int, at: int, values_at: int, indices_at: int) -> None:
        args.x = given.bring(native, at)
        args.values, args.indices = deliver[0].target(values_at), deliver[1].target(indices_at)
        run(native)
        deliver[0].finish(native, values_at)
        deliver[1].finish(native, indices_at)

    return steps.work(enqueue)


class Sorted:
    """A plan of CUB's, and the library that builds it, which it keeps."""

    def __init__(self, library: "CudaDnn", op: "cub.TopK") -> None:
        self._cccl = Cccl(library.device)
        self._work = sorting.top_k(self._cccl, op)

    def __call__(self, stream: "CudaStream", x: int, values: int, indices: int) -> None:
        self._work(stream, x, values, indices)

    def close(self) -> None:
        self._work.close()
        self._cccl.close()


def _sorted(library: "CudaDnn", op: TopK, x: Any, values: Any, indices: Any) -> Sorted:
    x, values, indices = (Placeholder(layout) for layout in (x, values, indices))
    return Sorted(library, cub.TopK(x=x, k=op.k, largest=op.largest, values=values, indices=indices))


@plans(TopKBackward)
def backward(library: "CudaDnn", op: TopKBackward) -> Work:
    """A plan: called with ``(dvalues, indices, dx)``."""
    steps, axis = PlanMemory(library), op.axis % op.dvalues.ndim
    dvalues, indices = (moved_last(one.layout, axis) for one in (op.dvalues, op.indices))
    dx = moved_last(made(op, "dx"), axis)
    if not dx.size:
        return steps.work(nothing)
    bring, delivery = [steps.brought(one) for one in (dvalues, indices)], steps.delivered(dx)
    tag, count, driver = "dnn.top_k_backward", indices.size, steps.device.driver
    fault = faults(steps.device, lambda value, wrong: wrong_rows(tag, "indices", value, wrong, count, op.extent))
    args = MoveArgs(rows=dx.size // op.extent, k=dvalues.shape[-1], length=op.extent, fault=fault.address)
    run = kernel(steps.device, "dnn_moves", types(dx.dtype, 1), "scatter", args, linear_grid(max(count, 1)), 256)

    def enqueue(native: int, dvalues_at: int, indices_at: int, dx_at: int) -> None:
        args.out = delivery.target(dx_at)
        driver.check(driver.memset_8(args.out, 0, dx.nbytes, native), "cuMemsetD8Async")
        args.x, args.indices = bring[0](native, dvalues_at), bring[1](native, indices_at)
        if count:
            run(native)
        delivery.finish(native, dx_at)

    return steps.work(enqueue, fault)
