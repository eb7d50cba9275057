"""Deep learning: convolutions, pooling, norms, activations, losses, recurrent layers (``CudnnActor``).

A family of ops has the module of its name here and in each backend. Its messages are exported by this package, so that
their tags are known when the package is imported.
"""

from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.pooling import AvgPool
from callboard.kernel.dnn.rnn import (
    RnnBackward,
    RnnForward,
    RnnForwardTraining,
    RnnGradients,
    RnnOutput,
    RnnParams,
    RnnTrained,
)

__all__ = [
    "AvgPool",
    "CudnnActor",
    "RnnBackward",
    "RnnForward",
    "RnnForwardTraining",
    "RnnGradients",
    "RnnOutput",
    "RnnParams",
    "RnnTrained",
]
