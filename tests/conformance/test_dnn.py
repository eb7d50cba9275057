"""Every message of deep learning runs, on small arrays of each layout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dnn_lab import drawn

from callboard.core.op import OPS
from callboard.kernel import dnn

CASES: dict[type[Any], Callable[[Any], Any]] = {
    dnn.AvgPool: lambda s: dnn.AvgPool(x=image(s), window=2),
    dnn.LayerNorm: lambda s: dnn.LayerNorm(x=rows(s), scale=line(s)),
    dnn.LayerNormTraining: lambda s: dnn.LayerNormTraining(x=rows(s), scale=line(s), bias=line(s)),
    dnn.LayerNormBackward: lambda s: dnn.LayerNormBackward(
        dy=rows(s), x=rows(s), mean=few(s), inverse=few(s), scale=line(s)
    ),
    dnn.RmsNorm: lambda s: dnn.RmsNorm(x=rows(s), scale=line(s)),
    dnn.RmsNormTraining: lambda s: dnn.RmsNormTraining(x=rows(s)),
    dnn.RmsNormBackward: lambda s: dnn.RmsNormBackward(dy=rows(s), x=rows(s), inverse=few(s), scale=line(s)),
    dnn.BatchNorm: lambda s: dnn.BatchNorm(x=image(s), mean=ones(s, 4), variance=ones(s, 4)),
    dnn.BatchNormTraining: lambda s: dnn.BatchNormTraining(
        x=image(s), running_mean=ones(s, 4), running_variance=ones(s, 4)
    ),
    dnn.BatchNormBackward: lambda s: dnn.BatchNormBackward(
        dy=image(s), x=image(s), mean=ones(s, 4), inverse=ones(s, 4), scale=ones(s, 4)
    ),
    dnn.InstanceNorm: lambda s: dnn.InstanceNorm(x=image(s)),
    dnn.InstanceNormTraining: lambda s: dnn.InstanceNormTraining(x=image(s), scale=ones(s, 4)),
    dnn.InstanceNormBackward: lambda s: dnn.InstanceNormBackward(
        dy=image(s), x=image(s), mean=ones(s, 2, 4), inverse=ones(s, 2, 4), scale=ones(s, 4)
    ),
    dnn.GroupNorm: lambda s: dnn.GroupNorm(x=image(s), groups=2),
    dnn.GroupNormTraining: lambda s: dnn.GroupNormTraining(x=image(s), groups=2, scale=ones(s, 4)),
    dnn.GroupNormBackward: lambda s: dnn.GroupNormBackward(
        dy=image(s), x=image(s), mean=ones(s, 2, 2), inverse=ones(s, 2, 2), groups=2, scale=ones(s, 4)
    ),
    dnn.Softmax: lambda s: dnn.Softmax(x=rows(s)),
    dnn.LogSoftmax: lambda s: dnn.LogSoftmax(x=image(s), axis=1),
    dnn.SoftmaxBackward: lambda s: dnn.SoftmaxBackward(dy=image(s), y=image(s), axis=1),
    dnn.LogSoftmaxBackward: lambda s: dnn.LogSoftmaxBackward(dy=rows(s), y=rows(s)),
    dnn.Activation: lambda s: dnn.Activation(x=rows(s), kind="gelu"),
    dnn.ActivationBackward: lambda s: dnn.ActivationBackward(dy=rows(s), x=rows(s), kind="elu", parameter=2),
    dnn.Dropout: lambda s: dnn.Dropout(x=rows(s), probability=0.25, seed=7, offset=3),
    dnn.DropoutBackward: lambda s: dnn.DropoutBackward(dy=rows(s), seed=number(s), offset=number(s)),
    dnn.DropoutMask: lambda s: dnn.DropoutMask(shape=(3, 5), probability=0.25),
    dnn.Lrn: lambda s: dnn.Lrn(x=image(s)),
    dnn.LrnBackward: lambda s: dnn.LrnBackward(dy=image(s), x=image(s)),
    dnn.Embedding: lambda s: dnn.Embedding(table=rows(s), indices=classes(s)),
    dnn.EmbeddingBackward: lambda s: dnn.EmbeddingBackward(dy=rows(s), indices=classes(s), rows=8),
    dnn.CrossEntropy: lambda s: dnn.CrossEntropy(x=rows(s), target=classes(s)),
    dnn.CrossEntropyBackward: lambda s: dnn.CrossEntropyBackward(
        dloss=ones(s), x=rows(s), target=classes(s), log_sum=few(s)
    ),
    dnn.Fused: lambda s: dnn.Fused(
        operands=(rows(s),), nodes=(dnn.GraphNode("relu", (0,)),), outputs=(dnn.GraphOutput(1, "f32"),)
    ),
    dnn.Mse: lambda s: dnn.Mse(x=rows(s), target=rows(s)),
    dnn.MseBackward: lambda s: dnn.MseBackward(dloss=ones(s), x=rows(s), target=rows(s)),
    dnn.Rope: lambda s: dnn.Rope(x=rows(s), cos=ones(s, 6, 4), sin=ones(s, 6, 4)),
    dnn.RopeBackward: lambda s: dnn.RopeBackward(
        dy=rows(s), cos=ones(s, 6, 4), sin=ones(s, 6, 4), positions=classes(s), interleaved=True
    ),
    dnn.TopK: lambda s: dnn.TopK(x=rows(s), k=3),
    dnn.TopKBackward: lambda s: dnn.TopKBackward(dvalues=rows(s), indices=distinct(s), extent=9),
    dnn.RnnForward: lambda s: dnn.RnnForward(**recurrent(s)),
    dnn.RnnForwardTraining: lambda s: dnn.RnnForwardTraining(**recurrent(s)),
    dnn.RnnBackward: lambda s: trained(s),
    dnn.AvgPoolBackward: lambda s: dnn.AvgPoolBackward(dy=image(s, 2, 4, 3, 3), shape=(2, 4, 6, 6), window=2),
    dnn.Conv: lambda s: dnn.Conv(x=image(s), w=image(s, 8, 4, 3, 3)),
    dnn.ConvBackwardData: lambda s: dnn.ConvBackwardData(
        dy=image(s, 2, 8, 4, 4), w=image(s, 8, 4, 3, 3), shape=(2, 4, 6, 6)
    ),
    dnn.ConvBackwardFilter: lambda s: dnn.ConvBackwardFilter(x=image(s), dy=image(s, 2, 8, 4, 4), shape=(8, 4, 3, 3)),
    dnn.ConvTranspose: lambda s: dnn.ConvTranspose(x=image(s, 2, 8, 4, 4), w=image(s, 8, 4, 3, 3)),
    dnn.MaxPool: lambda s: dnn.MaxPool(x=image(s), window=2),
    dnn.MaxPoolBackward: lambda s: dnn.MaxPoolBackward(
        dy=image(s, 2, 4, 3, 3), indices=s.put(np.zeros((2, 4, 3, 3), np.int32)), shape=(2, 4, 6, 6), window=2
    ),
    dnn.MaxPoolIndices: lambda s: dnn.MaxPoolIndices(x=image(s), window=2),
}


def image(session: Any, *shape: int) -> Any:
    return session.put(drawn(3, shape or (2, 4, 6, 6), "f32"))


def rows(session: Any) -> Any:
    return session.put(drawn(4, (6, 8), "f32"))


def line(session: Any) -> Any:
    return session.put(drawn(5, (8,), "f32"))


def few(session: Any) -> Any:
    """Of each row."""
    return session.put(np.abs(drawn(6, (6,), "f32")))


def ones(session: Any, *shape: int) -> Any:
    return session.put(np.ones(shape, "f4"))


def number(session: Any) -> Any:
    return session.put(np.array(3, "i8"))


def classes(session: Any) -> Any:
    return session.put(np.array([3, 0, 3, 1, 5, 2], "i4"))


def distinct(session: Any) -> Any:
    return session.put(np.tile(np.arange(8), (6, 1)))


def recurrent(session: Any) -> dict[str, Any]:
    params = dnn.RnnParams("lstm", 8, 16)
    weights = session.put(drawn(4, (params.weight_size,), "f32"))
    return {"x": session.put(drawn(3, (5, 2, 8), "f32")), "weights": weights, "params": params}


def trained(session: Any) -> Any:
    given = recurrent(session)
    made = session.submit(dnn.RnnForwardTraining(**given))
    return dnn.RnnBackward(**given, y=made.y, reserve=made.reserve, dy=made.y)


@pytest.mark.parametrize("op", sorted({c for t, c in OPS.items() if t.startswith("dnn.")}, key=lambda c: c.__name__))
def test_every_message_runs(session: Any, op: Any) -> None:
    replies = session.submit(CASES[op](session))
    for reply in replies if isinstance(replies, tuple) else (replies,):
        assert np.isfinite(session.get(reply).astype(np.float64)).all()
