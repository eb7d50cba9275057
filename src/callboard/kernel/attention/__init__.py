"""Operations of ``dev.attention``.

A forward pass with log-sum-exp, gradients, merging of partial results, and paged keys and values::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        q, k, v = (gpu.put(np.random.rand(2, 128, 8, 64).astype("f4")) for _ in range(3))
        out, lse = gpu.attention.forward(q, k, v, causal=True)
        print(out.shape, lse.shape)
"""

from callboard.kernel.attention.actor import *
from callboard.kernel.attention.backward import *
from callboard.kernel.attention.forward import *
from callboard.kernel.attention.fp8 import *
from callboard.kernel.attention.merging import *
from callboard.kernel.attention.paged import *
from callboard.kernel.attention.scores import AttentionParams as AttentionParams
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
