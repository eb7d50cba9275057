"""``ZeroReplica``: a replica with the optimizer's state of its share of the parameters only (ZeRO-1)."""

import itertools
from typing import Any

from callboard.train.kinds import refuse
from callboard.train.replicas.replica import Replica, Update

__all__ = ["ZeroReplica"]

ALL_PARAMETERS = "Prodigy", *(f"DAdapt{name}" for name in ("Adam", "SGD", "AdaGrad", "Lion", "Adan"))
"""Optimizers whose update of a parameter depends on the others; those that are not torch's by their usual names."""


class ZeroReplica(Replica):
    """A replica that updates its share of the parameters, and gets the others from those that update them.

    Parameters are not cut: each belongs to one replica, which sees its whole gradient. So the bits are those of a
    replica that updates all, as far as the optimizer looks at one parameter at a time (Rajbhandari et al. 2020, stage
    1). The gradients of all are added up on all, as their norm and running means are the same everywhere.
    """

    _place = -1, 0  # rank and size

    def enter(self, rank: int, size: int) -> Update:
        if self._place != (rank, size):
            refuse(self._optimizer, ALL_PARAMETERS, "shard='zero1'", "all parameters, and each device updates some")
            self._place = rank, size
            self._done = Update(-1)  # without the optimizer's state of this share
            self._optimizer.state.clear()
            sizes = [one.numel() * one.element_size() for one in self._parameters]
            middles = [stop - own / 2 for stop, own in zip(itertools.accumulate(sizes), sizes, strict=True)]
            self._owners = {
                id(one): int(middle * size / max(1, sum(sizes)))
                for one, middle in zip(self._parameters, middles, strict=True)
            }
        return self._done

    def _update(self) -> None:
        for one in self._parameters:
            if not self._owns(one):
                one.grad = None  # the optimizer passes over it
        self._optimizer.step()
        with self._torch.no_grad():
            self._hand_out()

    def _hand_out(self) -> None:
        """The new weights to all, by way of the buckets, whose gradients are used up."""
        given = []
        for flat, views in zip(self._buckets.flats, self._buckets.views, strict=True):
            runs = itertools.groupby(views, lambda one: self._owners[id(one[0])])
            sizes = [(owner, sum(view.numel() for _, view in run)) for owner, run in runs]
            parts = flat.split([size for _, size in sizes])
            given += [(owner, part) for (owner, _), part in zip(sizes, parts, strict=True)]
            for parameter, view in views:
                if self._owns(parameter):
                    view.copy_(parameter)
        self._reducer.lent = True
        self._exchange.hand_out(given)
        self._exchange.wait()
        self._reducer.lent = False
        for parameter, view in itertools.chain.from_iterable(self._buckets.views):
            if not self._owns(parameter):
                parameter.copy_(view)

    def _own(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        order = [one for group in self._optimizer.param_groups for one in group["params"]]
        state = {number: each for number, each in optimizer["state"].items() if self._owns(order[number])}
        return {**optimizer, "state": state}

    def _owns(self, parameter: Any) -> bool:
        return self._owners[id(parameter)] == self._place[0]
