"""The model of the resident benchmark: a perceptron 512-2048-512, f32, NumPy arrays in and out; in torch or NumPy.

The weights are the same in every subject, so all of them give the same answers.
"""

import importlib.util
from typing import Any

import numpy as np

import callboard as cb

__all__ = ["HIDDEN", "WIDTH", "Model", "Served", "check", "engine", "model_for"]

WIDTH, HIDDEN = 512, 2048

Array = np.ndarray[Any, np.dtype[np.float32]]


def engine() -> str:
    """``"torch"`` where it is installed, else ``"numpy"``, on the CPU."""
    return "numpy" if importlib.util.find_spec("torch") is None else "torch"


def _weights() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((WIDTH, HIDDEN), np.float32) / np.float32(WIDTH**0.5)
    second = rng.standard_normal((HIDDEN, WIDTH), np.float32) / np.float32(HIDDEN**0.5)
    return first, second


class Model:
    """In NumPy."""

    def __init__(self) -> None:
        self._first, self._second = _weights()

    def __call__(self, x: Array) -> Array:
        h = x @ self._first
        out: Array = (h * 0.5 * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h * h * h)))) @ self._second
        return out


class TorchModel(Model):
    """In torch, eager.

    Args:
        device: ``"cpu"``, ``"cuda"`` or a ``torch.device``.
    """

    def __init__(self, device: Any) -> None:
        import torch

        super().__init__()
        self._torch = torch
        self._device = device
        if str(device) == "cpu":
            torch.set_num_threads(1)  # the processes of a subject would take the cores from each other
        layers = [torch.nn.Linear(WIDTH, HIDDEN, bias=False), torch.nn.Linear(HIDDEN, WIDTH, bias=False)]
        for layer, weights in zip(layers, (self._first, self._second), strict=True):
            layer.weight = torch.nn.Parameter(torch.as_tensor(np.ascontiguousarray(weights.T)))
        self._net = torch.nn.Sequential(layers[0], torch.nn.GELU(approximate="tanh"), layers[1]).to(device)

    def on_device(self, x: Array) -> Any:
        """The answer as a tensor on the device."""
        with self._torch.no_grad():
            return self._net(self._torch.as_tensor(x, device=self._device))

    def __call__(self, x: Array) -> Array:
        out: Array = self.on_device(x).cpu().numpy()
        return out


def model_for(made_with: str, device: Any) -> Model:
    """The model, made with ``"torch"`` on this device or with ``"numpy"``."""
    return TorchModel(device) if made_with == "torch" else Model()


def check(x: Array, y: Array) -> None:
    """Compare an answer with that of NumPy.

    Raises:
        AssertionError: They differ.
    """
    expected = Model()(x)
    assert y.shape == expected.shape, (y.shape, expected.shape)
    assert y.dtype == np.float32, y.dtype
    np.testing.assert_allclose(y, expected, rtol=1e-2, atol=1e-2)  # the order of the sums differs


class Served(cb.ResidentActor):
    """The model as a resident actor.

    Args:
        made_with: ``"torch"`` or ``"numpy"``.
    """

    def __init__(self, made_with: str) -> None:
        self._made_with = made_with

    def prepare(self) -> None:
        if self._made_with == "torch":
            import torch  # noqa: F401

    def setup(self, ctx: cb.HostContext) -> None:
        self._ctx = ctx
        self._model = model_for(self._made_with, ctx.torch_device if self._made_with == "torch" else "cpu")

    def nothing(self) -> None:
        """Return at once."""

    def echo(self, array: Any) -> Any:
        """Send it back."""
        return array

    def run(self, x: Any) -> Any:
        """The model's answer."""
        model = self._model
        return self._ctx.host(model.on_device(x)) if isinstance(model, TorchModel) else model(x)
