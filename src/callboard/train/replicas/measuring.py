"""Metrics: functions of outputs and targets on the devices, objects that collect both on the host."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import methodcaller
from typing import Any, Protocol, runtime_checkable

import msgspec

from callboard.actors.errors import returned
from callboard.device.protocol.residents.code import dumps, loads
from callboard.train.states import State, unpack

__all__ = ["LOSS", "WEIGHT", "Collecting", "Collectors", "Measures", "Metric", "added", "measured", "packed"]


@runtime_checkable
class Collecting(Protocol):
    """A metric that is no mean over the samples, such as those of torchmetrics: F1, AUC. It stays in this process."""

    def reset(self) -> object:
        """Forget all samples."""

    def update(self, outputs: Any, targets: Any, /) -> object:
        """Take samples: tensors of the host."""

    def compute(self) -> Any:
        """The metric of all samples: a number, or a tensor with one."""


Metric = Callable[[Any, Any], Any] | Collecting
"""A function of outputs and targets, tensors of the device, that gives their mean over the samples; or an object."""

LOSS = "loss"
"""The name of the loss among the metrics."""

WEIGHT = "weight of the loss"
"""The name of what the sum of the losses is divided by."""


class Measures(msgspec.Struct, frozen=True):
    """What an evaluation gave of some samples.

    Attributes:
        sums: Metrics, each multiplied by the number of samples, the loss, multiplied by its weight, and this weight.
        collected: Outputs and targets, if there are objects to take them.
    """

    sums: dict[str, float]
    collected: list[State] = []


def packed(metrics: Mapping[str, Metric] | None) -> bytes:
    """Functions by name, and whether there are objects, in the form that travels.

    Raises:
        TypeError, ValueError: Something that is no metric, or cannot travel; a name that is taken.
    """
    given = metrics or {}
    for name, metric in given.items():
        if type(name) is not str or name in (LOSS, WEIGHT):
            raise ValueError(f"metrics has the name {name!r}; use a text that is neither {LOSS!r} nor {WEIGHT!r}")
        if not callable(metric) and not isinstance(metric, Collecting):
            what = "pass a function of outputs and targets, or an object with reset, update and compute"
            raise TypeError(f"metrics[{name!r}] is {metric!r:.80}; {what}")
    functions = {name: metric for name, metric in given.items() if not isinstance(metric, Collecting)}
    try:
        return dumps((functions, len(functions) < len(given)))
    except Exception as error:  # whatever the functions hold on to
        raise TypeError(f"metrics cannot be sent to the devices: {error}; pass functions of modules") from error


@lru_cache(8)
def _unpacked(code: bytes) -> tuple[Mapping[str, Callable[[Any, Any], Any]], bool]:
    functions, collects = loads(code)
    return functions, collects


def measured(
    code: bytes, outputs: Any, targets: Any, loss: Any, count: int, weight: float, pack: Callable[[Any], State] | None
) -> Measures:
    """Loss and metrics of some samples.

    Args:
        code: What :func:`packed` gave.
        outputs, targets: What the metrics are called with.
        loss: Mean loss of the samples.
        count: Their number.
        weight: See :func:`.weight_of`.
        pack: Packs tensors of the device for the host; None: another device has the same.

    Raises:
        TypeError: A metric gave something else than a number.
        ValueError: A number that no float can hold, or a metric that changed what the next one gets.
    """
    functions, collects = _unpacked(code)
    sums = {LOSS: float(loss) * weight if weight else 0.0, WEIGHT: weight}
    for name, metric in functions.items():
        before = list(_versions((outputs, targets)))
        value = metric(outputs, targets)
        if list(_versions((outputs, targets))) != before:
            raise ValueError(
                f"metrics[{name!r}] changed its outputs or targets in place, which others need; use outputs.clone()"
            )
        sums[name] = _number(name, value, "one number, the mean over the samples") * count
    return Measures(sums, [pack((outputs, targets))] if collects and pack is not None else [])


def _versions(value: Any) -> Iterator[int]:
    """How often the tensors in tuples, lists and dicts were changed in place."""
    if isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _versions(item)
    elif hasattr(value, "_version") and not value.is_inference():
        yield value._version


def added(parts: Iterable[Measures]) -> Measures:
    """The measures of several parts of a batch."""
    total: Counter[str] = Counter()
    collected: list[State] = []
    for part in parts:
        collected += part.collected
        for name, value in part.sums.items():
            total[name] += value  # type: ignore[assignment]  # a Counter adds up any numbers
    return Measures(dict(total), collected)


class Collectors:
    """The objects among the metrics, which a thread calls.

    Args:
        metrics: All metrics by name.
    """

    def __init__(self, metrics: Mapping[str, Metric] | None) -> None:
        self._objects = {name: one for name, one in (metrics or {}).items() if isinstance(one, Collecting)}

    async def _each(self, call: Callable[[Collecting], Any]) -> dict[str, Any]:
        if not self._objects:
            return {}
        return await asyncio.to_thread(lambda: {name: call(one) for name, one in self._objects.items()})

    async def reset(self) -> None:
        """An evaluation begins."""
        await self._each(methodcaller("reset"))

    async def update(self, collected: Iterable[State]) -> None:
        """Give them outputs and targets of some samples."""
        for state in collected:
            outputs, targets = unpack(state)
            await self._each(methodcaller("update", outputs, targets))

    async def compute(self) -> dict[str, float]:
        """What they give.

        Raises:
            TypeError: Something else than a number.
        """
        values = await self._each(methodcaller("compute"))
        return {name: _number(name, value, "one number") for name, value in values.items()}


def _number(name: str, value: Any, allowed: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"metrics[{name!r}] returned a whole number that is too large for a float") from None
    except (TypeError, ValueError, RuntimeError):
        raise returned(f"metrics[{name!r}]", value, allowed) from None
