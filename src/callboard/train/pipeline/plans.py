"""``Plan``: how a batch is cut into micro-batches, and in which order the devices compute them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.train.batches import Batch, as_arrays, part, rows_of
from callboard.train.job import Job
from callboard.train.pipeline.routes import Ports, Route
from callboard.train.pipeline.values import Value, of_batch

__all__ = ["MicroBatch", "Plan"]

PER_DEVICE = 4
"""Micro-batches for each device, if their size is not given."""


class MicroBatch(NamedTuple):
    """Samples that pass the stages together.

    Attributes:
        route: Their values.
        targets: For the loss; arrays are :class:`.Value` s.
        rows: Samples.
        weight: See :meth:`.Job.weight_of`.
    """

    route: Route
    targets: Any
    rows: int
    weight: float


class Plan(NamedTuple):
    """The settings of a pipeline.

    Attributes:
        schedule: See :func:`.table`.
        size: Samples of a micro-batch; None: so many that there are four micro-batches for each device.
        trim: Called with each micro-batch, gives what passes the stages; None: the micro-batch.
        job: With a loss, batches are inputs and targets.
    """

    schedule: str
    size: int | None
    trim: Callable[[Batch], Batch] | None
    job: Job

    def cut(self, batch: Batch, ports: list[Ports], entry: list[str], dtype: str, devices: int) -> list[MicroBatch]:
        """The micro-batches of a batch, in order; the last one may be smaller.

        Args:
            batch: Arrays.
            ports: Of the stages.
            entry: Names of the model's inputs.
            dtype: Of the weights.
            devices: Their number.

        Raises:
            TypeError, ValueError: Not what the model takes, or ``trim`` gave another number of samples.
        """
        rows = rows_of(batch)
        size = self.size or -(-rows // (PER_DEVICE * devices))
        micros = []
        for start in range(0, rows, size):
            some = part(batch, slice(start, start + size))
            count = min(size, rows - start)
            if self.trim is not None:
                some = as_arrays(self.trim(some))
                if rows_of(some) != count:
                    raise ValueError(f"trim gave {rows_of(some)} samples for {count}; it may cut other axes only")
            inputs, targets = _two(some) if self.job.loss is not None else (some, None)
            values = _values(inputs, dtype)
            given = values if isinstance(values, dict) else list(values if isinstance(values, tuple) else (values,))
            weight = self.job.weight_of(some, count)
            micros.append(MicroBatch(Route(ports, entry, given), _values(targets, dtype), count, weight))
        return micros


def _two(batch: Batch) -> tuple[Batch, Batch]:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise TypeError(f"the batch is {batch!r:.80}; with a loss it is (inputs, targets)")
    return batch[0], batch[1]


def _values(some: Any, dtype: str) -> Any:
    if isinstance(some, tuple):
        return tuple(_values(item, dtype) for item in some)
    if isinstance(some, dict):
        return {key: _values(item, dtype) for key, item in some.items()}
    return some if some is None or isinstance(some, Value) else of_batch(some, dtype)
