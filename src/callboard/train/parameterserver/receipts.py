"""``Receipts``: the pushes that were counted, so that a retried one is counted once."""

import asyncio
from collections.abc import Hashable

import msgspec

__all__ = ["Receipt", "Receipts"]

KEPT = 256
"""Pushes of each worker that are remembered."""


class Receipt(msgspec.Struct, frozen=True):
    """A push that was counted.

    Attributes:
        version: Of the weights, after it.
        staleness: Updates between the weights that it is for and itself.
    """

    version: int
    staleness: int


class Receipts:
    """Pushes by worker and sequence number, those that are being counted included."""

    def __init__(self) -> None:
        self._known: dict[Hashable, dict[int, asyncio.Future[Receipt]]] = {}
        self._floor: dict[Hashable, int] = {}

    def find(self, worker: Hashable, seq: int) -> asyncio.Future[Receipt] | None:
        """The same push, if it came before.

        Raises:
            ValueError: It may have come before, but is too old to tell.
        """
        found = self._known.get(worker, {}).get(seq)
        floor = self._floor.get(worker)
        if found is None and floor is not None and seq <= floor:
            raise ValueError(
                f"push: seq {seq} of worker {worker!r} is older than the {KEPT} pushes that are remembered, so a retry "
                "cannot be told from a new push; give each push a higher seq than the one before"
            )
        return found

    def add(self, worker: Hashable, seq: int, push: asyncio.Future[Receipt]) -> None:
        """This push is being counted; it is forgotten if it fails."""
        known = self._known.setdefault(worker, {})
        known[seq] = push
        push.add_done_callback(lambda done: self._settle(known, seq, done))
        while len(known) > KEPT:
            oldest = min(known)
            known.pop(oldest)
            self._floor[worker] = max(oldest, self._floor.get(worker, oldest))

    def _settle(self, known: dict[int, asyncio.Future[Receipt]], seq: int, push: asyncio.Future[Receipt]) -> None:
        if push.cancelled() or push.exception() is not None:
            known.pop(seq, None)

    def saved(self) -> list[tuple[Hashable, int | None, list[int]]]:
        """Worker, floor and counted pushes, for a checkpoint."""
        return [
            (worker, self._floor.get(worker), [seq for seq, push in known.items() if push.done()])
            for worker, known in self._known.items()
        ]

    def restore(self, saved: list[tuple[Hashable, int | None, list[int]]], version: int) -> None:
        """Know the pushes of a checkpoint, and no others."""
        self._known.clear()
        self._floor.clear()
        for worker, floor, counted in saved:
            if floor is not None:
                self._floor[worker] = floor
            for seq in counted:
                self.add(worker, seq, _done(Receipt(version, 0)))


def _done(receipt: Receipt) -> asyncio.Future[Receipt]:
    future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    future.set_result(receipt)
    return future
