"""Operations of ``dev.cutlass``: matrix products and convolutions with epilogues of one's own.

An epilogue (:class:`EpilogueVisitorTree`) is an expression on the elements of a product: biases, activations,
residuals, gates, scales, rounding to i8 and fp8, sums over rows and columns. It is computed in f32 before the result is
rounded and stored::

    import numpy as np, callboard as cb

    tree = cb.EpilogueVisitorTree().bias().gelu().scale("scale", per="column").quantize("i8")
    rng = np.random.default_rng(1)
    with cb.sync.device("auto") as gpu:
        x, w, bias = (gpu.put(rng.random(s, np.float32)) for s in ((64, 32), (32, 16), (16,)))
        y = gpu.cutlass.gemm(x, w, epilogue=tree, bias=bias, scale=gpu.full(16, 8.0, dtype="f32"))
        print(y.get().dtype)
"""

from callboard.kernel.cutlass.actor import *
from callboard.kernel.cutlass.conv import *
from callboard.kernel.cutlass.epilogue import EpilogueNode as EpilogueNode
from callboard.kernel.cutlass.epilogue import EpilogueVisitorTree as EpilogueVisitorTree
from callboard.kernel.cutlass.explain import *
from callboard.kernel.cutlass.gemm import *
from callboard.kernel.cutlass.refit import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
