"""The methods that name an activation, and the tables of rope."""

from typing import Any

import numpy as np
import pytest

import callboard as cb


def test_methods_name_activations_and_their_numbers() -> None:
    x = np.linspace(-3, 9, 25)
    negative = np.minimum(x, 0)
    with cb.sync.device("cpu") as dev:
        dnn, given = dev.dnn, dev.put(x)
        wanted: list[tuple[Any, Any]] = [
            (dnn.relu(given), np.maximum(x, 0)),
            (dnn.leaky_relu(given, slope=0.5), np.where(x > 0, x, 0.5 * x)),
            (dnn.clipped_relu(given, ceiling=2), np.clip(x, 0, 2)),
            (dnn.elu(given, alpha=2), np.where(x > 0, x, 2 * np.expm1(negative))),
            (dnn.sigmoid(given), 1 / (1 + np.exp(-x))),
            (dnn.tanh(given), np.tanh(x)),
            (dnn.silu(given, beta=2), x / (1 + np.exp(-2 * x))),
            (dnn.softplus(given, beta=2), np.log1p(np.exp(2 * x)) / 2),
        ]
        for got, want in wanted:
            np.testing.assert_allclose(got.get(), want, rtol=1e-12, atol=1e-14)
        exact, near = dnn.gelu(given).get(), dnn.gelu(given, approximate="tanh").get()
        assert 1e-6 < np.abs(exact - near).max() < 1e-3


def test_tables_of_rope_are_angles_of_positions() -> None:
    with cb.sync.device("cpu") as dev:
        cos, sin = (table.get() for table in dev.dnn.rope_tables(5, 8, base=100.0, dtype="f64"))
        assert cos.shape == sin.shape == (5, 4)
        np.testing.assert_allclose(np.arctan2(sin, cos)[1], 100.0 ** (-np.arange(4) / 4), rtol=1e-12)
        np.testing.assert_allclose((cos + 1j * sin)[3], (cos + 1j * sin)[1] ** 3, rtol=1e-12)
        with pytest.raises(cb.ShapeError, match="width 3"):
            dev.dnn.rope_tables(5, 3)


async def test_a_recording_that_advances_its_offset_drops_other_elements_each_time() -> None:
    """The offset is read on the device, so a replay needs no number of the call."""
    async with cb.device("cpu") as dev:
        x, offset = dev.full((4, 64), 1.0, "f32"), dev.put(np.array(0))
        with dev.record() as layer:
            dropped = dev.dnn.dropout(x, probability=0.5, seed=3, offset=offset)
            cb.elementwise("n = n + 256")(n=offset, out=offset)
            layer.returns(dropped)
        drawn = [await layer.replay().get() for _ in range(3)]
        wanted = [await dev.dnn.dropout(x, probability=0.5, seed=3, offset=256 * i).get() for i in range(3)]
        np.testing.assert_array_equal(drawn, wanted)
        assert len({one.tobytes() for one in drawn}) == 3
