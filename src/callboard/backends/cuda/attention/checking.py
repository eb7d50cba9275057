"""Lengths, packed sequences and page tables, checked on the device before a kernel uses them."""

import struct
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.attention.arguments import AttentionArgs, CheckArgs
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.readback import CudaStatus
from callboard.core.errors import ShapeError
from callboard.kernel.attention import PagedForward
from callboard.kernel.attention.scores import Masked, Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Checking", "checking", "tell"]

THREADS, MOST_BLOCKS = 256, 128
WRONG = {
    1: "cu_seqlens_q must ascend from 0 to at most {rows_q}, by at most {seq_q}",
    2: "cu_seqlens_k must ascend from 0 to at most {rows_k}, by at most {seq_k}",
    4: "seqlens_q has a length that does not lie between 0 and {rows_q}",
    8: "seqlens_k has a length that does not lie between 0 and {rows_k}",
    16: "block_tables names a page that does not exist; there are {pages}",
}
"""Bits of ``Wrong`` in ``data/attention.cuh``."""
TABLES = ("len_q", "len_k", "off_q", "off_k", "off_v", "off_o", "off_lse")


class Checking:
    """Checks the lengths of a call, and derives the arrays cuDNN needs from them.

    Args:
        library: The library of the plan.
        tag: The name of the op in errors.
        dtype: Name of the operands' dtype.
        problem: Problem of the call.
        tables: Make lengths, offsets and page tables for cuDNN, limited to the existing rows.
        max_blocks: Pages of a sequence; 0 without pages.

    Attributes:
        verdict: Address of the u32 that gets the bits of :data:`WRONG`.
        at: Addresses of the derived arrays, by name: :data:`TABLES` (``i32[batch + 1]`` each) and ``tables``.
    """

    def __init__(
        self, library: "CudaAttention", tag: str, problem: Problem, *, tables: bool = False, max_blocks: int = 0
    ) -> None:
        self._library, self._tag = library, tag
        entries = -(-(problem.batch + 1) // 4) * 4  # each begins at a multiple of 16 bytes
        nbytes = 16 + (4 * entries * len(TABLES) + 4 * problem.batch * max_blocks if tables else 0)
        self._memory = library.device.allocate(nbytes)
        first = self.verdict = self._memory.address
        self._args = CheckArgs(verdict=first)
        self.at: dict[str, int] = {}
        if tables:
            self.at = {name: first + 16 + 4 * entries * i for i, name in enumerate(TABLES)}
            if max_blocks:
                self.at["tables"] = first + 16 + 4 * entries * len(TABLES)
            for name, address in self.at.items():
                setattr(self._args, name, address)
        driver = library.device.driver
        function = library.device.kernels.get(f"attention_pages-{problem.dtype}", "attention_check")
        self._driver = driver
        blocks = -(-max(problem.batch + 1, problem.batch * max_blocks) // THREADS)
        self._launch = kernel_launcher(driver, function, min(blocks, MOST_BLOCKS), (THREADS, 1), self._args)

    def __call__(self, stream: "CudaStream", args: AttentionArgs) -> CudaStatus:
        """Enqueue it, for a call with these arguments; its status raises the faults found."""
        self._args.call = args
        self._driver.check(self._driver.memset_32(self._args.verdict, 0, 1, stream.native), "cuMemsetD32Async")
        self._launch(stream.native)
        return CudaStatus(self._args.verdict, 4, lambda outcome: tell(self._tag, self._args.call, outcome))

    def close(self) -> None:
        """Free its memory."""
        self._library.device.release(self._memory)


def tell(tag: str, args: AttentionArgs, outcome: bytes) -> None:
    """Raise the error that the check of a call has found.

    Raises:
        ShapeError: Lengths or pages do not fit.
    """
    (found,) = struct.unpack("<I", outcome)
    if found:
        numbers = {name: getattr(args, name) for name in ("rows_q", "rows_k", "seq_q", "seq_k", "pages")}
        why = "; ".join(text.format(**numbers) for bit, text in WRONG.items() if found & bit)
        raise ShapeError(f"{tag}: {why}")


def checking(library: "CudaAttention", op: Masked[Any], problem: Problem, *, tables: bool) -> Checking | None:
    """Return the check of a call with these operands, None if there is nothing to check.

    Args:
        library: The library of the plan.
        op: The message, with placeholders.
        problem: Problem of the call.
        tables: Make the arrays that cuDNN requires.
    """
    given = [op.cu_seqlens_q, *(getattr(op, name, None) for name in ("cu_seqlens_k", "seqlens_q", "seqlens_k"))]
    if not problem.batch or all(x is None for x in given):
        return None
    pages = op.block_tables.shape[1] if isinstance(op, PagedForward) else 0
    return Checking(library, type(op).__struct_config__.tag, problem, tables=tables, max_blocks=pages)  # type: ignore[arg-type]
