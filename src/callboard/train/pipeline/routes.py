"""``Route``: one micro-batch on its way through the stages: what each stage takes, and whose gradients it gives.

The outputs of a stage are the first arguments of the next one; a dict of outputs names its values. Every further
parameter of a stage, and every one behind a dict, gets the latest value of its name, from any stage before or from the
batch: a connection that skips stages.
"""

from typing import NamedTuple

import msgspec

from callboard.train.pipeline.values import Value

__all__ = ["From", "Ports", "Route"]


class Ports(msgspec.Struct, frozen=True):
    """The values of a stage by name.

    Attributes:
        inputs: Parameters, in order.
        optional: Those with a default.
        several: It takes any number of positional arguments.
        outputs: Names of the outputs; None: as its results say.
    """

    inputs: list[str]
    optional: list[str] = []
    several: bool = False
    outputs: list[str] | None = None


class From(NamedTuple):
    """A value, and the stage that gave it; -1: the batch."""

    stage: int
    value: Value


class Route:
    """The values of one micro-batch.

    Args:
        ports: Of each stage.
        entry: Names of the inputs of a batch that is a tuple.
        inputs: The inputs: positional, or by name.

    Raises:
        TypeError: More inputs than the model takes.
    """

    def __init__(self, ports: list[Ports], entry: list[str], inputs: list[Value] | dict[str, Value]) -> None:
        self._ports = ports
        self._values: dict[str, From] = {}
        self._latest: dict[str, str] = {}
        self._row: list[str] = []  # what the stage before gave without names
        self._taken: list[list[str]] = [[] for _ in ports]
        self._given: list[list[str]] = [[] for _ in ports]
        self._gradients: dict[str, From] = {}
        if isinstance(inputs, dict):
            for name, value in inputs.items():
                self._add(-1, name, value)
        else:
            if len(inputs) > len(entry) and not ports[0].several:
                raise TypeError(f"the batch has {len(inputs)} inputs, but the model takes {len(entry)}: {entry}")
            for at, value in enumerate(inputs):
                self._row.append(self._add(-1, entry[at] if at < len(entry) else f"#{at}", value))

    def _add(self, stage: int, name: str, value: Value) -> str:
        key = f"{stage}:{name}"
        self._values[key] = From(stage, value)
        self._latest[name] = key
        return key

    def take(self, stage: int) -> tuple[list[From], dict[str, From]]:
        """The arguments of a stage, positional and by name.

        Raises:
            TypeError: It takes a value that none before gave, or not what the stage before gave.
        """
        ports = self._ports[stage]
        row = [] if ports.outputs is not None else self._row  # stages cut from a graph know all values by name
        if len(row) > len(ports.inputs) and not ports.several:
            raise TypeError(
                f"stage {stage} takes {len(ports.inputs)} values ({', '.join(ports.inputs)}), but the stage before "
                f"gave {len(row)}; give values for later stages a name: return a dict"
            )
        named = {name: self._latest[name] for name in ports.inputs[len(row) :] if name in self._latest}
        for name in ports.inputs[len(row) :]:
            if name not in named and name not in ports.optional:
                raise TypeError(
                    f"stage {stage} takes {name!r}, which neither the batch nor a stage before gave; there are: "
                    f"{', '.join(name for name in self._latest if name[0] != '#') or 'none'}"
                )
        self._taken[stage] = [*row, *named.values()]
        return [self._values[key] for key in row], {name: self._values[key] for name, key in named.items()}

    def gave(self, stage: int, names: list[str] | None, values: list[Value]) -> None:
        """A stage's outputs: with names, or for the next stage in order."""
        keys = [
            self._add(stage, name, value)
            for name, value in zip(names or [f"#{at}" for at in range(len(values))], values, strict=True)
        ]
        self._row = [] if names is not None else keys
        self._given[stage] = keys

    def gradients(self, stage: int) -> tuple[list[From | None], list[From | None]]:
        """The gradients of a stage's outputs, and of its inputs so far: from the stages behind that took them, too."""
        of = self._gradients.get
        return [of(key) for key in self._given[stage]], [of(key) for key in self._taken[stage]]

    def passed_back(self, stage: int, gradients: list[Value | None]) -> None:
        """The gradients of a stage's inputs, those of the stages behind included."""
        for key, gradient in zip(self._taken[stage], gradients, strict=True):
            if gradient is not None:
                self._gradients[key] = From(stage, gradient)
        for key in self._given[stage]:
            self._gradients.pop(key, None)
            self._values.pop(key, None)
