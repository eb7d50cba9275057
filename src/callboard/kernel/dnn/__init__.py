"""Deep learning: convolutions, pooling, norms, activations, losses, recurrent layers (``CudnnActor``).

Each family of ops has a module of its name here and in each backend. This package imports all of them, so that
importing it registers the tags of their messages.
"""

from callboard.kernel.dnn.activations import *
from callboard.kernel.dnn.actor import *
from callboard.kernel.dnn.channel_norms import *
from callboard.kernel.dnn.conv import *
from callboard.kernel.dnn.dropout import *
from callboard.kernel.dnn.embedding import *
from callboard.kernel.dnn.graphs import *
from callboard.kernel.dnn.layer_norm import *
from callboard.kernel.dnn.losses import *
from callboard.kernel.dnn.lrn import *
from callboard.kernel.dnn.pooling import *
from callboard.kernel.dnn.rnn import *
from callboard.kernel.dnn.rope import *
from callboard.kernel.dnn.softmax import *
from callboard.kernel.dnn.top_k import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
