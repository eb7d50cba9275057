"""Metrics: functions of outputs and targets, on their way to the devices, and what they give there."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from callboard.actors.errors import returned
from callboard.device.protocol.residents.code import dumps, loads

__all__ = ["LOSS", "Metric", "added", "measured", "packed"]

Metric = Callable[[Any, Any], Any]
"""Of outputs and targets, tensors of the device: a number, or a tensor with one; a mean over the samples."""

LOSS = "loss"
"""The name of the loss among the metrics."""


def packed(metrics: Mapping[str, Metric] | None) -> bytes:
    """Metrics by name, in the form that travels.

    Raises:
        TypeError, ValueError: Something that is no function, or cannot travel; a name that is taken.
    """
    for name, metric in (metrics or {}).items():
        if type(name) is not str or name == LOSS:
            raise ValueError(f"metrics has the name {name!r}; use a text that is not {LOSS!r}")
        if not callable(metric):
            raise TypeError(f"metrics[{name!r}] is {metric!r:.80}; pass a function of outputs and targets")
    try:
        return dumps(dict(metrics or {}))
    except Exception as error:  # whatever the functions hold on to
        raise TypeError(f"metrics cannot be sent to the devices: {error}; pass functions of modules") from error


@lru_cache(8)
def _functions(code: bytes) -> Mapping[str, Metric]:
    functions: Mapping[str, Metric] = loads(code)
    return functions


def measured(code: bytes, outputs: Any, targets: Any, loss: Any, count: int) -> dict[str, float]:
    """Loss and metrics of some samples, each multiplied by their number.

    Args:
        code: What :func:`packed` gave.
        outputs, targets: What the metrics are called with.
        loss: Mean loss of the samples.
        count: Their number.

    Raises:
        TypeError: A metric gave something else than a number.
        ValueError: A number that no float can hold, or a metric that changed what the next one gets.
    """
    found = {LOSS: float(loss) * count}
    for name, metric in _functions(code).items():
        before = list(_versions((outputs, targets)))
        value = metric(outputs, targets)
        if list(_versions((outputs, targets))) != before:
            raise ValueError(
                f"metrics[{name!r}] changed its outputs or targets in place, which others need; use outputs.clone()"
            )
        try:
            found[name] = float(value) * count
        except OverflowError:
            raise ValueError(f"metrics[{name!r}] returned a whole number that is too large for a float") from None
        except (TypeError, ValueError, RuntimeError):
            allowed = "one number, the mean over the samples"
            raise returned(f"metrics[{name!r}]", value, allowed) from None
    return found


def _versions(value: Any) -> Iterator[int]:
    """How often the tensors in tuples, lists and dicts were changed in place."""
    if isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _versions(item)
    elif hasattr(value, "_version") and not value.is_inference():
        yield value._version


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums of several parts of a batch."""
    total: Counter[str] = Counter()
    for part in parts:
        for name, value in part.items():
            total[name] += value  # type: ignore[assignment]  # a Counter adds up any numbers
    return dict(total)
