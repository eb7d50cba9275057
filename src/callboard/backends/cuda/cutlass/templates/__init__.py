"""A product with its epilogue as C++ of CUTLASS 3 for Hopper: one kernel, and the C functions that launch it.

The epilogue is one node of CUTLASS's visitor tree, ``Sm90Compute``, whose function is generated from ours; the arrays
are its leaves. It is computed in f32 on the accumulators in registers.
"""

from callboard.backends.cuda.cutlass.templates.call import MAX_INPUTS, Call
from callboard.backends.cuda.cutlass.templates.product import Mainloop, gemm_text
from callboard.backends.cuda.cutlass.templates.rules import why_no_template

__all__ = ["MAX_INPUTS", "Call", "Mainloop", "gemm_text", "why_no_template"]
