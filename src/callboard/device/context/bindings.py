"""Bindings: what a call's places come to, kept for calls that name the same buffers again.

Loops whose arrays stay where they are call with the same places again and again. That the buffers are there, that the
operands lie inside them, and what addresses that makes, is as it was then as long as the buffers are the same: ids are
never used again, and the memory of a buffer does not move. What may have changed is looked at each time: who owes the
contents, and whom to wait for.
"""

from typing import Any, NamedTuple

from callboard.device.context.blocks import Block

__all__ = ["Binding", "Bindings", "Use"]

SEEN = 256
"""Places of one plan that are remembered; beyond that it begins anew."""


class Use(NamedTuple):
    """A block that a call uses.

    Attributes:
        block: It.
        buffer: The buffer that it was.
        writes: The op writes it.
        heeds: What was written there before matters: it is read, or overwritten in part only.
    """

    block: Block
    buffer: int
    writes: bool
    heeds: bool


class Binding(NamedTuple):
    """Places that have been resolved.

    Attributes:
        values: Arguments of the launch, with addresses.
        uses: The blocks that they lie in.
    """

    values: list[Any]
    uses: list[Use]


class Bindings:
    """Those of one plan. Made when places come for the second time: most never do where arrays are made anew.

    Attributes:
        by_places: All of them; None for places that have come once.
    """

    __slots__ = ("by_places",)

    def __init__(self) -> None:
        self.by_places: dict[tuple[int, ...], Binding | None] = {}

    def resolved(self, places: tuple[int, ...], values: list[Any], uses: list[Use]) -> None:
        """These places have come, and come to this."""
        by_places = self.by_places
        if places in by_places:
            if all(block.buffer == buffer for block, buffer, _, _ in uses):  # blocks of others have no name there
                by_places[places] = Binding(values.copy(), uses.copy())
        else:
            if len(by_places) >= SEEN:
                by_places.clear()
            by_places[places] = None
