"""Templates compiled ahead of the calls that they serve, without a device."""

import os
from concurrent.futures import ThreadPoolExecutor

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.convolutions.flat import why_no_conv
from callboard.backends.cuda.cutlass.convolutions.plans import sources_of
from callboard.backends.cuda.cutlass.grouped_text import grouped_text, leaves_of, sums_of, why_no_groups
from callboard.backends.cuda.cutlass.templated import ARCHITECTURE, Source
from callboard.backends.cuda.cutlass.templates import gemm_text, why_no_template
from callboard.backends.cuda.cutlass.tilings import tilings_of, tilings_of_groups
from callboard.core.errors import UnsupportedOp
from callboard.kernel.cutlass import Conv, Gemm, GroupedGemm
from callboard.kernel.cutlass.fused import Problem

__all__ = ["compile_ahead"]


def compile_ahead(op: Gemm | GroupedGemm | Conv, dry_run: bool) -> list[str]:
    """Compile the templates of a message into the cache, as many at a time as there are cores; says what was done.

    Args:
        op: The message, with placeholders.
        dry_run: Only say what would be compiled.

    Returns:
        A line for each tiling.

    Raises:
        UnsupportedOp: There is no template for the message; says why.
        BackendUnavailable: nvcc, g++ or the headers are missing.
        LibraryError: nvcc refuses a template.
    """
    problem = op.problem()
    if why := _why_none(op, problem):
        raise UnsupportedOp(f"there is no template: {why}")
    if isinstance(op, GroupedGemm):
        made = sums_of(op) if leaves_of(op) is None else op
        tilings = tilings_of_groups(op.a.shape[0], op.b.shape[0], op.b.shape[2], op.a.dtype.itemsize)
        sources = [Source(tiling, grouped_text(made, tiling)) for tiling in tilings]
        title = f"{op.a.dtype} @ {op.b.dtype}, groups of {op.a.shape[0] // op.b.shape[0]} rows"
    elif isinstance(op, Conv):
        sources = sources_of(op)
        title = f"{op.kind} of {op.a.dtype} -> {problem.result.dtype}"
    else:
        sources = [Source(tiling, gemm_text(op, problem, tiling)) for tiling in tilings_of(op, problem)]
        title = f"{op.a.dtype} @ {op.b.dtype} -> {problem.result.dtype}"

    sources = list({source.text: source for source in sources}.values())  # stream-K and split-K have one text

    def compiled(source: Source) -> str:
        text, words = source.text, f"{title}, {source.tiling}"
        if nvcc.is_built(text, ARCHITECTURE):
            return f"in the cache: {words}"
        if dry_run:
            return f"to compile for sm_{ARCHITECTURE}, {len(text)} characters: {words}"
        return f"compiled for sm_{ARCHITECTURE}, {len(nvcc.built(text, ARCHITECTURE))} bytes: {words}"

    with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1)) as workers:
        return list(workers.map(compiled, sources))


def _why_none(op: Gemm | GroupedGemm | Conv, problem: Problem) -> str | None:
    if isinstance(op, Conv):
        return why_no_conv(op, problem)
    return why_no_groups(op, problem) if isinstance(op, GroupedGemm) else why_no_template(op, problem)
