"""Dropout on a GPU: one kernel draws the words of Philox, which are never written."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import aligned, arguments, kernel, made, types
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory, Work, nothing
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.dnn.dropout import Dropout, DropoutBackward, DropoutMask, threshold_of

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["DropoutArgs", "mask", "scaled"]

DropoutArgs = arguments("Args", p="x out seed_at offset_at", w="seed offset threshold", i="count packed", d="factor")
"""``Args`` of ``data/dnn_dropout.cu``."""

THREADS = 256
WORDS = 4
BITS = (1 << 64) - 1


class Draw:
    """The arguments that name the numbers: integers, or the addresses of some."""

    def __init__(self, op: Any, args: Any) -> None:
        self._args = args
        self._by_address = isinstance(op.seed, Operand), isinstance(op.offset, Operand)

    def put(self, probability: float, seed: Any, offset: Any) -> None:
        """Set the numbers of a call."""
        args = self._args
        args.threshold = threshold_of(probability)
        args.factor = 0.0 if probability >= 1 else 1 / (1 - probability)
        for name, value, by_address in zip(("seed", "offset"), (seed, offset), self._by_address, strict=True):
            setattr(args, f"{name}_at", value if by_address else None)
            setattr(args, name, 0 if by_address else value & BITS)


@plans(Dropout, DropoutBackward)
def scaled(library: "CudaDnn", op: Dropout | DropoutBackward) -> Work:
    """A plan: called with ``(x, probability, seed, offset, out)``."""
    source, result = (op.x, "out") if isinstance(op, Dropout) else (op.dy, "dx")
    steps, layout = PlanMemory(library), made(op, result)
    if not layout.size:
        return steps.work(nothing)
    bring, delivery = steps.brought(source.layout), steps.delivered(layout)
    args = DropoutArgs(count=layout.size)
    draw = Draw(op, args)
    defined = {**types(layout.dtype, WORDS), "MASK": 0}
    blocks = linear_grid(layout.size // WORDS + 2)
    run = kernel(steps.device, "dnn_dropout", defined, "dropout", args, blocks, THREADS)
    masks = [min(16, WORDS * layout.dtype.itemsize) - 1] * 2

    def enqueue(native: int, x: int, probability: float, seed: Any, offset: Any, out: int) -> None:
        draw.put(probability, seed, offset)
        args.x, args.out = bring(native, x), delivery.target(out)
        args.packed = aligned((args.x, args.out), masks)
        run(native)
        delivery.finish(native, out)

    return steps.work(enqueue)


@plans(DropoutMask)
def mask(library: "CudaDnn", op: DropoutMask) -> Work:
    """A plan: called with ``(probability, seed, offset, out)``."""
    steps, layout = PlanMemory(library), made(op)
    if not layout.size:
        return steps.work(nothing)
    delivery, args = steps.delivered(layout), DropoutArgs(count=layout.size)
    draw = Draw(op, args)
    defined = {"TYPE": "u8", "ACC": "float", "VEC": WORDS, "MASK": 1}
    blocks = linear_grid(layout.size // WORDS + 2)
    run = kernel(steps.device, "dnn_dropout", defined, "dropout", args, blocks, THREADS)

    def enqueue(native: int, probability: float, seed: Any, offset: Any, out: int) -> None:
        draw.put(probability, seed, offset)
        args.out = delivery.target(out)
        args.packed = aligned((args.out,), [WORDS - 1])
        run(native)
        delivery.finish(native, out)

    return steps.work(enqueue)
