"""A kernel of Triton's, which reads its source from a file; imported in hosts only, where Triton is installed."""

from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def put(out: Any, at: Any) -> None:
    """Write element ``at``."""
    tl.store(out + at, 7.0)
