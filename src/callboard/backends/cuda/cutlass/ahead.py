"""Templates compiled ahead of the calls that they serve, without a device."""

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.grouped_text import compiled_for, grouped_text, why_no_groups
from callboard.backends.cuda.cutlass.templated import ARCHITECTURE
from callboard.backends.cuda.cutlass.templates import gemm_text, why_no_template
from callboard.core.errors import UnsupportedOp
from callboard.kernel.cutlass import Gemm, GroupedGemm

__all__ = ["compile_ahead"]


def compile_ahead(op: Gemm | GroupedGemm, dry_run: bool) -> str:
    """Compile the template of a message into the cache, unless it is there; says what was done.

    Args:
        op: The message, with placeholders.
        dry_run: Only say what would be compiled.

    Raises:
        UnsupportedOp: There is no template for the message; says why.
        BackendUnavailable: nvcc, g++ or the headers are missing.
        LibraryError: nvcc refuses the template.
    """
    problem = op.problem()
    if why := why_no_groups(op, problem) if isinstance(op, GroupedGemm) else why_no_template(op, problem):
        raise UnsupportedOp(f"there is no template: {why}")
    if isinstance(op, GroupedGemm):
        text = grouped_text(compiled_for(op))
        title = f"{op.a.dtype} @ {op.b.dtype}, groups of {op.a.shape[0] // op.b.shape[0]} rows"
    else:
        text = gemm_text(op, problem)
        title = f"{op.a.dtype} @ {op.b.dtype} -> {problem.result.dtype}"
    if nvcc.is_built(text, ARCHITECTURE):
        return f"in the cache: {title}"
    if dry_run:
        return f"to compile for sm_{ARCHITECTURE}, {len(text)} characters: {title}"
    return f"compiled for sm_{ARCHITECTURE}, {len(nvcc.built(text, ARCHITECTURE))} bytes: {title}"
