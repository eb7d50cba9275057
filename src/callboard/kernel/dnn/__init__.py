"""Deep learning: convolutions, pooling, norms, activations, losses, recurrent layers (``CudnnActor``).

Each family of ops has a module of its name here and in each backend. This package exports all messages, so that
importing it registers their tags.
"""

from callboard.kernel.dnn.activations import Activation, ActivationBackward
from callboard.kernel.dnn.actor import CudnnActor
from callboard.kernel.dnn.channel_norms import (
    BatchNorm,
    BatchNormBackward,
    BatchNormTraining,
    GroupNorm,
    GroupNormBackward,
    GroupNormTraining,
    InstanceNorm,
    InstanceNormBackward,
    InstanceNormTraining,
)
from callboard.kernel.dnn.conv import Conv, ConvBackwardData, ConvBackwardFilter, ConvTranspose
from callboard.kernel.dnn.dropout import Dropout, DropoutBackward, DropoutMask
from callboard.kernel.dnn.embedding import Embedding, EmbeddingBackward
from callboard.kernel.dnn.graphs import Fused, Fusion, GraphNode, GraphOutput, GraphValue
from callboard.kernel.dnn.layer_norm import (
    LayerNorm,
    LayerNormBackward,
    LayerNormTraining,
    Normalised,
    NormGradients,
    RmsGradients,
    RmsNorm,
    RmsNormalised,
    RmsNormBackward,
    RmsNormTraining,
)
from callboard.kernel.dnn.losses import CrossEntropy, CrossEntropyBackward, CrossEntropyLoss, Mse, MseBackward
from callboard.kernel.dnn.lrn import Lrn, LrnBackward
from callboard.kernel.dnn.pooling import AvgPool, AvgPoolBackward, MaxPool, MaxPoolBackward, MaxPooled, MaxPoolIndices
from callboard.kernel.dnn.rnn import (
    RnnBackward,
    RnnForward,
    RnnForwardTraining,
    RnnGradients,
    RnnOutput,
    RnnParams,
    RnnTrained,
)
from callboard.kernel.dnn.rope import Rope, RopeBackward
from callboard.kernel.dnn.softmax import LogSoftmax, LogSoftmaxBackward, Softmax, SoftmaxBackward
from callboard.kernel.dnn.top_k import Largest, TopK, TopKBackward

__all__ = [
    "Activation",
    "ActivationBackward",
    "AvgPool",
    "AvgPoolBackward",
    "BatchNorm",
    "BatchNormBackward",
    "BatchNormTraining",
    "Conv",
    "ConvBackwardData",
    "ConvBackwardFilter",
    "ConvTranspose",
    "CrossEntropy",
    "CrossEntropyBackward",
    "CrossEntropyLoss",
    "CudnnActor",
    "Dropout",
    "DropoutBackward",
    "DropoutMask",
    "Embedding",
    "EmbeddingBackward",
    "Fused",
    "Fusion",
    "GraphNode",
    "GraphOutput",
    "GraphValue",
    "GroupNorm",
    "GroupNormBackward",
    "GroupNormTraining",
    "InstanceNorm",
    "InstanceNormBackward",
    "InstanceNormTraining",
    "Largest",
    "LayerNorm",
    "LayerNormBackward",
    "LayerNormTraining",
    "LogSoftmax",
    "LogSoftmaxBackward",
    "Lrn",
    "LrnBackward",
    "MaxPool",
    "MaxPoolBackward",
    "MaxPoolIndices",
    "MaxPooled",
    "Mse",
    "MseBackward",
    "NormGradients",
    "Normalised",
    "RmsGradients",
    "RmsNorm",
    "RmsNormBackward",
    "RmsNormTraining",
    "RmsNormalised",
    "RnnBackward",
    "RnnForward",
    "RnnForwardTraining",
    "RnnGradients",
    "RnnOutput",
    "RnnParams",
    "RnnTrained",
    "Rope",
    "RopeBackward",
    "Softmax",
    "SoftmaxBackward",
    "TopK",
    "TopKBackward",
]
