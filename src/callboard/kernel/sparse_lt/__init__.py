"""2:4 structured sparsity: pruning, compression, and products with half of the multiplications.

In each row of a structured matrix, at most two of every four adjacent elements are not 0 (for f32: one of every two),
and tensor cores skip the others. A matrix is pruned and compressed once, and then used in many products::

    import numpy as np, callboard as cb

    rng = np.random.default_rng(1)
    with cb.sync.device("auto") as gpu:
        x, w = (gpu.put(rng.standard_normal(s, np.float32)) for s in ((32, 128), (128, 128)))
        layer = gpu.sparse_lt.compress(gpu.sparse_lt.prune(w))
        y = gpu.sparse_lt.linear(x, layer, bias=gpu.zeros(128), activation="relu")
        print(y.shape, layer.data.nbytes / w.nbytes)
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.sparse_lt.actor import *
from callboard.kernel.sparse_lt.products import *
from callboard.kernel.sparse_lt.pruning import *
from callboard.kernel.sparse_lt.structured import StructuredRef as StructuredRef

_export_all(__name__)
