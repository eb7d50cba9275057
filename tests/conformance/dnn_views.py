"""Arrays of deep learning in memory of any strides, and gradients by PyTorch in f64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from dnn_lab import torch_of, wide
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]

VIEWS = ("whole", "padded", "turned", "backwards")
views = st.sampled_from(VIEWS)


def placed(session: Any, array: Array, view: str) -> Any:
    """The array on the device: alone, among others, with its axes in another order, or from its end."""
    if view == "whole" or array.ndim == 0:
        return session.put(array)
    if view == "padded":
        around = np.zeros([n + 3 for n in array.shape], array.dtype)
        inside = tuple(slice(1, n + 1) for n in array.shape)
        around[inside] = array
        return session.put(around)[inside]
    if view == "turned":
        return session.put(np.ascontiguousarray(array.T)).T
    return session.put(array[::-1].copy())[::-1]


def differentiated(function: Callable[..., Any], *arrays: Array | None, dy: Array | None = None) -> tuple[Any, ...]:
    """What a function of f64 tensors gives, and its gradients by each array, where ``dy`` is that by the result."""
    torch = torch_of()
    given = [None if a is None else torch.tensor(wide(a), requires_grad=True) for a in arrays]
    result = function(*given)
    result.backward(torch.ones_like(result) if dy is None else torch.tensor(wide(dy)))
    return result.detach().numpy(), *(None if g is None or g.grad is None else g.grad.numpy() for g in given)


def by_differences(function: Callable[[Array], Array], x: Array, dy: Array, step: float = 1e-6) -> Array:
    """The gradient of ``sum(function(x) * dy)`` by central differences."""
    found = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        high, low = x.copy(), x.copy()
        high[at] += step
        low[at] -= step
        found[at] = ((function(high) - function(low)) * dy).sum() / (2 * step)
    return found
