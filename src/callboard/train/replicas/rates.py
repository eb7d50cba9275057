"""``Rates``: the step sizes of an update, and the other settings that a scheduler of torch changes."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import msgspec

__all__ = ["Groups", "Rates"]


class Groups(msgspec.Struct, frozen=True):
    """An optimizer as it was before its first update, without its parameters: all that a scheduler looks at.

    Attributes:
        defaults: Its settings by name, for groups that do not have others.
        settings: Of each group of parameters.
    """

    defaults: dict[str, Any] = {}
    settings: list[dict[str, Any]] = []

    @classmethod
    def of(cls, optimizer: Any) -> Self:
        """Those of an optimizer of torch; None: it has no parameters."""
        if optimizer is None:
            return cls()
        return cls(_plain(optimizer.defaults), [_plain(group) for group in optimizer.param_groups])

    def beginning_with(self, rates: Iterable[float]) -> "Groups":
        """The same settings with other step sizes."""
        pairs = zip(self.settings, rates, strict=True)
        return msgspec.structs.replace(self, settings=[{**group, "lr": rate} for group, rate in pairs])


class Rates(msgspec.Struct, frozen=True):
    """The step sizes of an update.

    Attributes:
        factor: By which all of them are multiplied.
        settings: For each optimizer and each of its groups of parameters, what a scheduler of torch has changed, with
            the step size as ``"lr"``. None: step sizes are those that the optimizers began with.
    """

    factor: float = 1.0
    settings: list[list[dict[str, Any]]] | None = None

    def only(self, number: int) -> "Rates":
        """The same for one of several optimizers."""
        return self if self.settings is None else Rates(self.factor, [self.settings[number]])

    def of(self, rates: Sequence[Any], number: int = 0) -> list[dict[str, Any]]:
        """The settings that each group of parameters gets.

        Args:
            rates: Step sizes that the optimizer began with.
            number: Of the optimizer, where there are several.
        """
        if self.settings is None:
            return [{"lr": rate * self.factor} for rate in rates]
        return [{**own, "lr": own["lr"] * self.factor} for own in self.settings[number]]


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that travel; tensors of one element become numbers."""
    found = {name: _value(value) for name, value in settings.items() if name != "params"}
    return {name: value for name, value in found.items() if value is not ...}


def _value(value: Any) -> Any:
    if isinstance(value, tuple | list):
        items = [_value(item) for item in value]
        return ... if ... in items else tuple(items)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return float(value) if getattr(value, "numel", int)() == 1 else ...
