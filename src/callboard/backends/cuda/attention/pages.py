"""Plans of ops on pages and on partial results, by our own kernels."""

import struct
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.attention.arguments import MergeArgs, PageArgs, Steps, lse_steps, page_steps, steps
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.readback import CudaStatus
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel.attention import Merge, PageAppend, PageCopy
from callboard.kernel.attention.problem import tensor_of

if TYPE_CHECKING:
    from callboard.backends.cuda.attention.library import CudaAttention
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Merging", "Paging"]

THREADS, WARPS = 128, 4
MOST_BLOCKS = 1 << 14
"""The kernels step over the rest."""


@plans(PageAppend, PageCopy)
class Paging:
    """A plan of ``PageAppend`` or ``PageCopy``: ``plan(stream, *operands)``."""

    executed_by = "callboard"

    def __init__(self, library: "CudaAttention", op: "PageAppend | PageCopy") -> None:
        op.infer()
        pages, block, heads, dim = op.k_pages.shape
        self._library = library
        self._tag = type(op).__struct_config__.tag
        self._memory = library.device.allocate(16)
        args = self._args = PageArgs(
            verdict=self._memory.address,
            heads=heads,
            dim=dim,
            dim_v=op.v_pages.shape[3],
            block_size=block,
            pages=pages,
            k_pages_at=page_steps(op.k_pages.layout),
            v_pages_at=page_steps(op.v_pages.layout),
        )
        if isinstance(op, PageAppend):
            name, args.count = "append", op.k.shape[0]
            args.k_at, args.v_at = (Steps(x.strides[2], x.strides[1], x.strides[0]) for x in (op.k, op.v))
            self._places: tuple[str, ...] = ("k", "v", "k_pages", "v_pages", "slots")
        else:
            name, args.count = "copy", op.sources.size
            self._places = ("k_pages", "v_pages", "sources", "targets")
        driver = self._driver = library.device.driver
        source = f"attention_pages-{op.k_pages.dtype}"
        function = library.device.kernels.get(source, f"attention_{name}_{op.k_pages.dtype.itemsize}")
        self._launch = kernel_launcher(driver, function, max(1, min(args.count, MOST_BLOCKS)), (THREADS, 1), args)

    def __call__(self, stream: "CudaStream", *operands: Any) -> CudaStatus | None:
        args = self._args
        if not args.count:
            return None
        for place, value in zip(self._places, operands, strict=True):
            setattr(args, place, value)
        self._driver.check(self._driver.memset_32(args.verdict, 0, 1, stream.native), "cuMemsetD32Async")
        self._launch(stream.native)
        return CudaStatus(args.verdict, 4, self._check)

    def _check(self, outcome: bytes) -> None:
        if struct.unpack("<I", outcome)[0]:
            pages, block = self._args.pages, self._args.block_size
            raise ShapeError(f"{self._tag}: a slot is beyond the {pages} pages of {block} tokens")

    def close(self) -> None:
        """Free its memory."""
        self._library.device.release(self._memory)


@plans(Merge)
class Merging:
    """A plan of ``Merge``: ``plan(stream, outs, lses, out, lse)``."""

    executed_by = "callboard"

    def __init__(self, library: "CudaAttention", op: Merge) -> None:
        made = op.infer()
        out = made["out"] if op.out is None else op.out.layout
        lse = made["lse"] if op.lse is None else op.lse.layout
        one = tensor_of(op, "out", out, op.layout)
        args = self._args = MergeArgs(
            parts=len(op.outs),
            batch=one.batch,
            heads=one.heads,
            rows=one.rows,
            dim=one.dim,
            out_at=Steps(*one.strides),
            lse_at=lse_steps(lse),
        )
        for at, (x, y) in enumerate(zip(op.outs, op.lses, strict=True)):
            args.outs_at[at] = steps(op, "outs", x.layout, op.layout)
            args.lses_at[at] = lse_steps(y.layout)
        self._count = one.batch * one.heads * one.rows
        driver = library.device.driver
        function = library.device.kernels.get(f"attention_pages-{out.dtype}", "attention_merge")
        self._launch = kernel_launcher(driver, function, max(1, -(-self._count // WARPS)), (THREADS, 1), args)

    def __call__(self, stream: "CudaStream", outs: tuple[int, ...], lses: tuple[int, ...], out: int, lse: int) -> None:
        if not self._count:
            return
        args = self._args
        args.outs[: len(outs)] = outs
        args.lses[: len(lses)] = lses
        args.out, args.lse = out, lse
        self._launch(stream.native)
