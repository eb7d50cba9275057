"""A kernel of Triton's, which reads its source from a file; imported in hosts only, where Triton is installed."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def put(out, at):  # type: ignore[no-untyped-def]  # Triton evaluates annotations, and knows none of typing's
    """Write element ``at``."""
    tl.store(out + at, 7.0)
