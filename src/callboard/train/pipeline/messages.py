"""What the trainer and the workers of its devices tell each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from callboard.train.job import Job
from callboard.train.pipeline.routes import Ports
from callboard.train.pipeline.values import Value
from callboard.train.replicas.measuring import Measures

__all__ = ["Assigned", "Described", "Finished", "Outputs"]


@dataclass(frozen=True)
class Assigned:
    """What a device is to compute.

    Attributes:
        job: The training, of the whole model.
        at: Where the whole model is cut, see :func:`.split`.
        models: All stages, None where they are another device's; or None: the whole model is cut.
        last: Number of the last stage of the model.
        splits: Backward passes are done in two parts.
        stages: Numbers of this device's stages.
        in_host_memory: Values leave the device as arrays of the host: it is a CPU in a process of its own.
    """

    job: Job
    at: int | Sequence[str]
    models: Sequence[Any] | None
    last: int
    splits: bool
    stages: tuple[int, ...] = ()
    in_host_memory: bool = False


class Described(msgspec.Struct, frozen=True):
    """A stage as the trainer knows it.

    Attributes:
        ports: Its values.
        entry: Names of the model's inputs.
        dtype: Of its weights; empty if it has none.
        prefix: Of the names of its weights in the whole model.
        weights: Names of the weights in the order in which the optimizer has them.
        names: All names of its ``state_dict``.
    """

    ports: Ports
    entry: list[str]
    dtype: str
    prefix: str
    weights: list[str]
    names: list[str]


class Outputs(msgspec.Struct, frozen=True):
    """What a stage gave for a micro-batch.

    Attributes:
        names: None: in order, for the next stage.
        values: The values.
    """

    names: list[str] | None
    values: list[Value]


class Finished(msgspec.Struct, frozen=True):
    """What a device has computed in a step.

    Attributes:
        loss: Sum of the losses of all samples, on the device of the last stage; else 0.
        norms: Of the gradient of each weight; their sum does not depend on where the model is cut.
        micros: Microseconds in which it computed.
        flops: Operations, if they were counted.
        measures: Of an evaluation, on the last stage's device.
    """

    loss: float
    norms: list[float]
    micros: int
    flops: int
    measures: Measures | None = None
