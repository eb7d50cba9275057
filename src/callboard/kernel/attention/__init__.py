"""Operations of ``dev.attention``.

A forward pass with log-sum-exp, gradients, merging of partial results, and paged keys and values::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        q, k, v = (gpu.put(np.random.rand(2, 128, 8, 64).astype("f4")) for _ in range(3))
        out, lse = gpu.attention.forward(q, k, v, causal=True)
        print(out.shape, lse.shape)
"""

from callboard.kernel.attention.actor import FlashAttnActor
from callboard.kernel.attention.backward import (
    AttentionBiasGradients,
    AttentionGradients,
    Backward,
    BackwardBias,
    BackwardSink,
)
from callboard.kernel.attention.forward import AttentionResult, Forward
from callboard.kernel.attention.fp8 import BackwardFp8, ForwardFp8, Fp8Gradients, Fp8Result
from callboard.kernel.attention.merging import Merge
from callboard.kernel.attention.paged import KvPages, PageAppend, PageCopy, PagedForward
from callboard.kernel.attention.scores import AttentionParams

__all__ = [
    "AttentionBiasGradients",
    "AttentionGradients",
    "AttentionParams",
    "AttentionResult",
    "Backward",
    "BackwardBias",
    "BackwardFp8",
    "BackwardSink",
    "FlashAttnActor",
    "Forward",
    "ForwardFp8",
    "Fp8Gradients",
    "Fp8Result",
    "KvPages",
    "Merge",
    "PageAppend",
    "PageCopy",
    "PagedForward",
]
