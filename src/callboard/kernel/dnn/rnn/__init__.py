"""Recurrent networks: RNN, LSTM and GRU of several layers, in one direction or both, and their gradients."""

from callboard.kernel.dnn.rnn.messages import (
    RnnAlgorithm,
    RnnBackward,
    RnnForward,
    RnnForwardTraining,
    RnnGradients,
    RnnLayout,
    RnnOutput,
    RnnTrained,
)
from callboard.kernel.dnn.rnn.params import RnnDirection, RnnMode, RnnParams
from callboard.kernel.dnn.rnn.weights import initial_weights, pack_weights, unpack_weights

__all__ = [
    "RnnAlgorithm",
    "RnnBackward",
    "RnnDirection",
    "RnnForward",
    "RnnForwardTraining",
    "RnnGradients",
    "RnnLayout",
    "RnnMode",
    "RnnOutput",
    "RnnParams",
    "RnnTrained",
    "initial_weights",
    "pack_weights",
    "unpack_weights",
]
