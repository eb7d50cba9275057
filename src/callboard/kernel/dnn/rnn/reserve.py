"""How much memory a training pass leaves for the backward pass."""

from callboard.core.dtype import DType
from callboard.core.errors import NumericalError
from callboard.kernel.dnn.rnn.params import RnnParams

__all__ = ["FILLED", "HEADER", "USED", "check_filled", "reserve_bytes"]

HEADER = 256
"""Bytes at the beginning: whether a forward pass has filled it and no backward pass has used it yet."""
FILLED, USED = 0x46494C4C, 0x55534544
"""The first word of the header, of 32 bits: behind a forward pass, and behind the backward pass that it was for."""
KEPT = {"rnn_relu": 4, "rnn_tanh": 4, "lstm": 10, "gru": 8}
"""Numbers for each number of a state, at most, that the backward pass of a cell needs, by cuDNN or on a CPU."""
SLACK = 1 << 16
"""Bytes of a layer beside that."""


def reserve_bytes(params: RnnParams, dtype: DType, steps: int, dropout: bool) -> int:
    """Bytes of the reserve: the same on every backend, so that it is known before anything is sent.

    Args:
        params: The network.
        dtype: Of its arrays.
        steps: Of all sequences together, with the padding.
        dropout: Numbers between layers are dropped: their masks are kept, and what was passed on.
    """
    cells = params.num_layers * params.directions
    kept = cells * steps * (KEPT[params.mode] * params.hidden_size + params.state_size)
    between = (params.num_layers - 1) * steps * params.output_size if dropout else 0
    total = HEADER + kept * dtype.itemsize + cells * SLACK + between * (2 * dtype.itemsize + 1)
    return -(-total // HEADER) * HEADER


def check_filled(word: int) -> None:
    """Whether a backward pass found a reserve as a forward pass leaves it.

    Raises:
        NumericalError: It did not; says what it found.
    """
    if word == USED:
        why = "has been used up by another backward pass; give that one a copy of it (dev.copy), made before it"
    else:
        why = "holds no training pass; pass the reserve that dnn.rnn_forward_training made"
    if word != FILLED:
        raise NumericalError(f"dnn.rnn_backward: reserve {why}", info=-1)
