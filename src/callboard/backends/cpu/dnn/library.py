"""``CpuDnn``: the modules whose plans serve the messages."""

from callboard.backends.cpu.dnn import (
    activations,
    channel_norms,
    conv,
    dropout,
    embedding,
    graphs,
    layer_norm,
    losses,
    lrn,
    pooling,
    rope,
    softmax,
    top_k,
)
from callboard.backends.cpu.dnn.rnn import plans as rnn
from callboard.backends.cpu.library import CpuLibrary

__all__ = ["CpuDnn"]


class CpuDnn(CpuLibrary):
    """Serves :mod:`callboard.kernel.dnn` with NumPy."""

    name = "dnn"
    max_plans = 1024
    modules = (
        activations,
        channel_norms,
        conv,
        dropout,
        embedding,
        graphs,
        layer_norm,
        losses,
        lrn,
        pooling,
        rope,
        softmax,
        top_k,
        rnn,
    )
