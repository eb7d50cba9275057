"""The length of a reserve, which is known before a device is asked, beside what cuDNN 9.19 asks for on an H200."""

import pytest

from callboard.core.dtype import DTYPES
from callboard.kernel.dnn.rnn import RnnParams
from callboard.kernel.dnn.rnn.reserve import HEADER, reserve_bytes

ASKED = [  # mode, dtype, layers, directions, steps, batch, input, hidden, projection: bytes
    ("rnn_tanh", "f16", 1, 1, 8, 4, 16, 32, 0, 2304),
    ("rnn_tanh", "f64", 2, 2, 8, 4, 16, 32, 0, 49408),
    ("rnn_relu", "f32", 1, 1, 8, 4, 16, 32, 0, 4352),
    ("lstm", "f16", 1, 1, 8, 4, 16, 32, 0, 10496),
    ("lstm", "bf16", 2, 1, 8, 4, 16, 32, 0, 22784),
    ("lstm", "f32", 2, 2, 8, 4, 16, 32, 0, 90368),
    ("lstm", "f32", 2, 1, 1, 1, 1, 1, 0, 352),
    ("lstm", "f32", 2, 1, 16, 3, 7, 33, 0, 69952),
    ("lstm", "f32", 2, 1, 128, 64, 512, 512, 0, 184549632),
    ("lstm", "f16", 1, 1, 8, 8, 128, 128, 0, 82176),
    ("lstm", "f16", 2, 1, 8, 4, 16, 32, 8, 27904),
    ("lstm", "f64", 2, 2, 8, 4, 16, 32, 8, 221440),
    ("gru", "f16", 1, 1, 8, 4, 16, 32, 0, 12544),
    ("gru", "f64", 2, 2, 8, 4, 16, 32, 0, 213248),
    ("gru", "f32", 2, 1, 1, 1, 1, 1, 0, 352),
    ("gru", "f32", 2, 1, 128, 64, 512, 512, 0, 218104064),
]


@pytest.mark.parametrize("mode, dtype, layers, directions, steps, batch, given, hidden, projection, asked", ASKED)
def test_it_is_little_more_than_cudnn_asks_for(
    mode: str, dtype: str, layers: int, directions: int, steps: int, batch: int, given: int, hidden: int,
    projection: int, asked: int,
) -> None:  # fmt: skip
    direction = ("unidirectional", "bidirectional")[directions - 1]
    params = RnnParams(mode, given, hidden, layers, direction, projection)  # type: ignore[arg-type]
    found = reserve_bytes(params, DTYPES[dtype], steps * batch, dropout=False)
    own = 256 + (asked - 256 + 255) // 256 * 256
    more = 2 if mode.startswith("rnn") else 1.25
    assert HEADER + own <= found <= HEADER + more * own + 2048 * layers * directions


@pytest.mark.parametrize("mode, kept", [("rnn_relu", 1), ("lstm", 5), ("gru", 6)])
def test_it_holds_the_layers_one_by_one_where_numbers_are_dropped_between_them(mode: str, kept: int) -> None:
    """cuDNN's reserve of each layer, its output, what is passed on and the mask, each from a multiple of 256."""
    params = RnnParams(mode, 5, 3, 4, "bidirectional")  # type: ignore[arg-type]
    out = 7 * 2 * 3
    layer = 256 + kept * out * 4 + 32 * 8
    parts = [layer, *([out * 4, out * 4, out] * 3), layer, layer, layer]
    asked = HEADER + sum(-(-part // 256) * 256 for part in parts)
    assert asked <= reserve_bytes(params, DTYPES["f32"], 7, dropout=True) <= asked + 2048 * 8
