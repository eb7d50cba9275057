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
]
