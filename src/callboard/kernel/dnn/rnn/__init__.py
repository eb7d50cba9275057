"""Recurrent networks: RNN, LSTM and GRU of several layers, in one direction or both, and their gradients."""

from callboard.kernel.dnn.rnn.messages import *
from callboard.kernel.dnn.rnn.params import RnnDirection as RnnDirection
from callboard.kernel.dnn.rnn.params import RnnMode as RnnMode
from callboard.kernel.dnn.rnn.params import RnnParams as RnnParams
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
