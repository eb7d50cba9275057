"""Operations of ``dev.blas_lt``: matrix products fused with their prologues and epilogues.

The ops compute bias, activation, their derivatives and the gradients of biases in one pass over the result. Factors may
be scaled fp8, operands may be batches, and the result may be another array than the addend. Arrays are row-major, as in
NumPy: a bias has one number for each column.

Two layers, forward and backward, without asyncio (``examples/mlp.py`` trains them)::

    import numpy as np, callboard as cb

    rng = np.random.default_rng(1)
    with cb.sync.device("auto") as gpu:
        x, w1, w2, dy = (gpu.put(rng.random(s, np.float32)) for s in ((128, 64), (64, 32), (32, 10), (128, 10)))
        hidden, aux = gpu.blas_lt.matmul_aux(x, w1, bias=gpu.zeros(32), epilogue="gelu_aux_bias")
        y = gpu.blas_lt.matmul(hidden, w2, bias=gpu.zeros(10), epilogue="bias")
        dw2, db2 = gpu.blas_lt.matmul_bgrad(hidden, dy, transpose_a=True, epilogue="bgrad_b")
        below, db1 = gpu.blas_lt.matmul_bgrad(dy, w2, transpose_b=True, aux=aux, epilogue="dgelu_bgrad")
        dw1 = gpu.blas_lt.matmul(x, below, transpose_a=True)
        print([g.get().shape for g in (y, dw1, db1, dw2, db2)])
"""

from callboard.kernel.blas_lt.actor import *
from callboard.kernel.blas_lt.epilogues import Activation as Activation
from callboard.kernel.blas_lt.epilogues import AuxEpilogue as AuxEpilogue
from callboard.kernel.blas_lt.epilogues import BgradEpilogue as BgradEpilogue
from callboard.kernel.blas_lt.epilogues import Epilogue as Epilogue
from callboard.kernel.blas_lt.matmul import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
