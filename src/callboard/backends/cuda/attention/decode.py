"""The plan of decoding: one query of each sequence over pages, by our own kernel with tensor cores."""

from typing import TYPE_CHECKING, Any, ClassVar

from callboard.backends.cuda.attention.arguments import POINTERS, DecodeArgs, arguments, names_of
from callboard.backends.cuda.attention.checking import checking, tell
from callboard.backends.cuda.attention.own import OwnForward, sinks_launcher
from callboard.backends.cuda.attention.rules import ALIGNMENT, Wanted
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.readback import CudaStatus
from callboard.kernel.attention import PagedForward
from callboard.kernel.attention.scores import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Decoding", "decodes", "parts_of"]

THREADS, WARPS, COLUMNS, KEYS = 128, 4, 8, 16
"""Launch parameters of the kernel; ``COLUMNS`` query heads and ``KEYS`` keys form a product."""
DIMS = (64, 128)
RUNNING = 132 * 12
"""Warps that a large GPU runs at once: 12 on each of 132 multiprocessors."""
LEAST, MOST = 64, 256
"""Keys of a part, and parts of a sequence."""


def decodes(w: Wanted) -> bool:
    """True if the kernel computes a call that cuDNN could also compute (with no feature of the table)."""
    p = w.problem
    return (
        isinstance(w.op, PagedForward)
        and p.seq_q == 1
        and not p.ragged
        and p.dim == p.dim_v
        and p.dim in DIMS
        and max(w.left, w.right) < 0
        and w.op.k_pages.shape[1] % KEYS == 0
    )


def parts_of(problem: Problem) -> tuple[int, int]:
    """The largest number of parts of a sequence, and the keys of each.

    Shapes decide it alone, so that equal calls give equal bits: there may be more keys than a sequence has.
    """
    together = problem.batch * problem.kv_heads * -(-problem.group // COLUMNS)
    parts = max(1, min(RUNNING // together, problem.seq_k // LEAST, MOST))
    keys = -(-problem.seq_k // (parts * KEYS)) * KEYS
    return -(-problem.seq_k // keys), keys


class Decoding:
    """A plan of ``PagedForward``: ``plan(stream, *operands)``.

    The kernel checks lengths and pages itself. Operands that do not begin at a multiple of 16 bytes, which is only
    known at the launch, use the general kernels.
    """

    executed_by: ClassVar[str] = "callboard decoding"

    def __init__(self, library: "CudaAttention", w: Wanted) -> None:
        op, problem = w.op, w.problem
        device, driver = library.device, library.device.driver
        args = self._args = DecodeArgs(call=arguments(op, problem))
        args.parts, args.keys = parts_of(problem)
        self._call = args.call
        self._driver, self._tag = driver, type(op).__struct_config__.tag
        self._places = [POINTERS.get(name) or name for name in names_of(op)]
        rows = problem.batch * problem.heads
        warps = problem.batch * problem.kv_heads * -(-problem.group // COLUMNS) * args.parts
        source = f"attention_decode-{problem.dtype}-D={problem.dim}"
        decode, join = (device.kernels.get(source, f"attention_{name}") for name in ("decode", "join"))
        self._steps = [kernel_launcher(driver, decode, -(-warps // WARPS), (THREADS, 1), args)]
        if args.parts > 1:
            self._steps.append(kernel_launcher(driver, join, rows, (THREADS, 1), args))
        if op.sink is not None:
            self._steps.append(sinks_launcher(library, args.call, problem))
        checked = checking(library, op, problem, tables=False)
        assert checked is not None  # the message has lengths
        self._own, self._workspace = OwnForward(library, op, checked), library.workspace
        try:
            self._room = self._workspace.lease(4 * args.parts * rows * (problem.dim + 1))
        except BaseException:  # any exception: release the memory
            self._own.close()
            raise
        args.verdict, args.outs = checked.verdict, self._room.memory.address

    def __call__(self, stream: "CudaStream", *operands: Any) -> CudaStatus | None:
        call, union = self._call, 0
        for place, value in zip(self._places, operands, strict=True):
            setattr(call, place, value)
            if place in ("q", "k", "v", "out"):
                union |= value
        if union % ALIGNMENT:
            return self._own(stream, *operands)
        native = stream.native
        self._driver.check(self._driver.memset_32(self._args.verdict, 0, 1, native), "cuMemsetD32Async")
        for step in self._steps:
            step(native)
        return CudaStatus(self._args.verdict, 4, lambda outcome: tell(self._tag, call, outcome))

    def close(self) -> None:
        """Free the memory; no launch uses it any more."""
        self._own.close()
        self._workspace.leave(self._room)
