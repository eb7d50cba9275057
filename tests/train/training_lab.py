"""Models and data that several tests train, and the plain loop that they are compared with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import callboard as cb
from callboard.train.kinds import loss_of, optimizer_of

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))


def mlp64() -> torch.nn.Module:
    return mlp().double()


def dropping() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Dropout(0.2), nn.Linear(40, 3))


def batches(count: int, rows: int, dtype: str = "f4") -> list[Arrays]:
    draw = np.random.default_rng(0)
    xs = draw.standard_normal((count, rows, 6)).astype(dtype)
    return list(zip(xs, draw.integers(0, 3, (count, rows)), strict=True))


def plain(
    model: torch.nn.Module,
    data: Sequence[Arrays],
    optimizer: Any,
    loss: Any = None,
    clip: float | None = None,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """One process, whole batches."""
    parameters = list(model.parameters())
    rule, of = optimizer_of(optimizer, parameters), loss_of(loss or cb.LossKind.CrossEntropy())
    dtype = parameters[0].dtype
    losses = []
    for x, y in data:
        rule.zero_grad()
        target = torch.as_tensor(y)
        inputs = torch.as_tensor(x)
        inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
        value = of(model(inputs), target if target.dtype == torch.int64 else target.to(dtype))
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        rule.step()
        losses.append(float(value.detach()))
    return losses, model.state_dict()
