"""Lookup of rows on a GPU, and its gradient: indices are sorted, and rows of equal ones added up in order."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import Launch, aligned, arguments, faults, kernel, made, types
from callboard.backends.cuda.dnn.rows import RowShape, RowsIn, RowsOut, pack_of
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import Outcome, PlanMemory, Work, nothing
from callboard.core.library import plans
from callboard.kernel.dnn.embedding import Embedding, EmbeddingBackward, wrong_rows
from callboard.kernel.dnn.operands import accumulator

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["EmbeddingArgs", "backward", "forward"]

EmbeddingArgs = arguments(
    "Args",
    p="rows_at indices out fault keys partial",
    i="count rows width packs in_row out_row size run distance padding by_frequency",
)
"""``Args`` of ``data/dnn_embedding.cu``."""

THREADS = 256
LOCAL = 2048
"""Keys that one block sorts by itself."""
PART = 64
"""Rows that one row of threads adds up."""


def _index(op: Any) -> str:
    return "int" if op.indices.dtype.name == "i32" else "long long"


@plans(Embedding)
def forward(library: "CudaDnn", op: Embedding) -> Work:
    """A plan: called with ``(table, indices, out)``."""
    steps, count, (rows, width), item = PlanMemory(library), op.indices.size, op.table.shape, op.table.dtype.itemsize
    if not count:
        return steps.work(nothing)
    table, out, indices_of = RowsIn(steps, op.table.layout), RowsOut(steps, made(op)), steps.brought(op.indices.layout)
    fault = _fault(steps, "dnn.embedding", count, rows)
    args = EmbeddingArgs(count=count, rows=rows, width=width, in_row=table.step, out_row=out.step, fault=fault.address)
    whole = pack_of(item, width, (table.step, out.step))
    packs: list[tuple[int, Launch]] = []
    for pack in dict.fromkeys((whole, 1)):
        defined = {**types(op.table.dtype, pack), "INDEX": _index(op), "LANES": 32, "ROWS": 1}
        grid = linear_grid(count * max(1, width // pack))
        packs.append((width // pack, kernel(steps.device, "dnn_embedding", defined, "lookup", args, grid, THREADS)))

    def enqueue(native: int, table_at: int, indices: int, out_at: int) -> None:
        args.rows_at, args.indices = table.bring(native, table_at), indices_of(native, indices)
        args.out = out.target(out_at)
        args.packs, run = packs[0 if aligned((args.rows_at, args.out), [item * whole - 1] * 2) else -1]
        run(native)
        out.finish(native, out_at)

    return steps.work(enqueue, fault)


def _fault(steps: PlanMemory, tag: str, count: int, rows: int) -> Outcome:
    return faults(steps.device, lambda value, wrong: wrong_rows(tag, "indices", value, wrong, count, rows))


@plans(EmbeddingBackward)
def backward(library: "CudaDnn", op: EmbeddingBackward) -> Work:
    """A plan: called with ``(dy, indices, dtable)``."""
    steps, count, width, dtype = PlanMemory(library), op.indices.size, op.dy.shape[-1], op.dy.dtype
    layout = made(op, "dtable")
    delivery = steps.delivered(layout)
    clear = steps.device.driver.memset_8
    if not count or not width:

        def zero(native: int, dy: int, indices: int, dtable: int) -> None:
            if layout.nbytes:
                steps.device.driver.check(clear(delivery.target(dtable), 0, layout.nbytes, native), "cuMemsetD8Async")
            delivery.finish(native, dtable)

        return steps.work(zero)
    dy, indices_of = RowsIn(steps, op.dy.layout), steps.brought(op.indices.layout)
    fault = _fault(steps, "dnn.embedding_backward", count, op.rows)
    size = max(LOCAL, 1 << (count - 1).bit_length())
    args = EmbeddingArgs(
        count=count, rows=op.rows, width=width, in_row=dy.step, out_row=width, size=size, fault=fault.address,
        padding=-1 if op.padding is None else op.padding, by_frequency=int(op.by_frequency),
    )  # fmt: skip
    keys = steps.take(8 * size)
    partial = steps.take_items(2 * -(-count // PART) * width, accumulator(dtype).np) if count > PART else None
    whole = pack_of(dtype.itemsize, width, (dy.step,))
    mask = dtype.itemsize * whole - 1
    packs: list[tuple[int, Launch, Launch]] = []
    launches: dict[str, Launch] = {}
    for pack in dict.fromkeys((whole, 1)):
        lanes = min(128, 1 << (max(1, width // pack) - 1).bit_length())
        shape = RowShape(lanes, 128 // lanes, 0)
        defined = {**types(dtype, pack), "INDEX": _index(op), "LANES": shape.lanes, "ROWS": shape.rows}

        def get(name: str, grid: int, block: int, defined: dict[str, object] = defined) -> Launch:
            return kernel(steps.device, "dnn_embedding", defined, name, args, grid, block)

        launches = launches or {
            "keys": get("keys", linear_grid(size), THREADS),
            "local": get("sort_local", size // LOCAL, LOCAL // 2),
            "step": get("sort_step", linear_grid(size // 2), THREADS),
        }
        sums = get("sum_parts", shape.blocks(count), shape.threads)
        join = get("join_parts", shape.blocks(-(-count // PART)), shape.threads)
        packs.append((width // pack, sums, join))

    def sort(native: int) -> None:
        args.run = LOCAL
        launches["local"](native)
        args.run = 2 * LOCAL
        while args.run <= size:
            args.distance = args.run // 2
            while args.distance >= LOCAL:
                launches["step"](native)
                args.distance //= 2
            launches["local"](native)
            args.run *= 2

    def enqueue(native: int, dy_at: int, indices: int, dtable: int) -> None:
        args.rows_at, args.indices = dy.bring(native, dy_at), indices_of(native, indices)
        args.out, args.keys = delivery.target(dtable), keys.ptr
        steps.device.driver.check(clear(args.out, 0, layout.nbytes, native), "cuMemsetD8Async")
        launches["keys"](native)
        sort(native)
        args.packs, sums, join = packs[0 if aligned((args.rows_at, args.out), [mask] * 2) else -1]
        if partial is not None:
            args.partial = partial.ptr
        sums(native)
        if partial is not None:
            join(native)
        delivery.finish(native, dtable)

    return steps.work(enqueue, fault)
