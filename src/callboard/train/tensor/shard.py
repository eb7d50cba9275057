"""``TensorShard``: the resident actor that holds a part of each layer, and takes steps together with the others."""

import hashlib
import importlib
import math
import os
import time
from typing import Any

import msgspec

from callboard.device.protocol.residents.actor import HostContext
from callboard.train.batches import Batch
from callboard.train.job import Job
from callboard.train.kinds import refuse, share_of
from callboard.train.replicas.measuring import Measures
from callboard.train.replicas.randomness import seed_of, seeded
from callboard.train.replicas.rates import Rates
from callboard.train.replicas.replica import Replica, Taken, Update
from callboard.train.tensor.cuts import Division
from callboard.train.tensor.plan import Plan, resolved

__all__ = ["Entered", "TensorShard"]

WHOLE_TENSORS = "Adafactor", "Muon"
"""Optimizers of torch whose update of an element depends on the whole tensor."""


class Entered(msgspec.Struct, frozen=True):
    """What a shard is, once it knows its number.

    Attributes:
        division: How the model is cut, the same on all shards.
        weights: Hash of the whole model's weights as it was built; empty: it was not built now.
        process: The process that it is in.
        draws: The model has dropout.
        done: The last update.
    """

    division: Division
    weights: str
    process: int
    draws: bool
    done: Update


class TensorShard(Replica):
    """One of the trainer's shards. A new instance (also after a loss) is none until it has entered and has weights."""

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job)
        self._plan = plan

    def prepare(self) -> None:
        super().prepare()
        for name in ("flow", "layers", "loss"):
            importlib.import_module(f"callboard.train.tensor.{name}")

    def setup(self, ctx: HostContext) -> None:
        self._entered: tuple[int, int] | None = None
        with self._first.setting_up(ctx):
            self._enter(ctx, ctx.device)

    # -- among the others ----------------------------------------------------------------------------------------------

    def cut(self, rank: int, size: int, is_first: bool) -> Entered:
        """Be this one of so many shards: cut the model, unless that has been done.

        Args:
            rank, size: Number of this shard, and of all.
            is_first: The weights that the model was built with count.
        """
        weights = ""
        if self._entered != (rank, size):
            from callboard.train.tensor.flow import Flow
            from callboard.train.tensor.layers import cut_model
            from callboard.train.tensor.loss import loss_of_cut

            model, self._whole = self._whole or self._built(), None
            weights = _hash_of(model) if is_first else ""
            self._exchange.rank, self._exchange.size = rank, size
            self._flow = Flow(self._exchange)
            self._cuts = cut_model(model, resolved(self._plan, model, self._job.loss), self._flow)
            self._use(model)
            if size > 1:
                refuse(self._optimizer, WHOLE_TENSORS, "TensorParallelTrainer", "whole tensors, which no device has")
            if self._job.loss is not None:
                self._loss = loss_of_cut(self._job.loss, self._flow, self._device)
            self._entered = rank, size
        draws = any(one.training and _probability(one) for one in self._model.modules())
        return Entered(Division(self._cuts, self._names()), weights, os.getpid(), draws, self._done)

    def done(self) -> Update:
        return Update(-1) if self._entered is None else self._done

    # -- a step --------------------------------------------------------------------------------------------------------

    def take(self, step: int, total: float, batch: Batch, rates: Rates) -> Taken:
        """Take a step with the whole batch, together with the other shards.

        Nothing is changed before the gradients of all shards are complete: their norm is a collective, too.
        """
        self._check_follows(step)
        began = time.perf_counter_ns()
        self._restore(step)
        seeded(seed_of(self._job.seed, step, -1), self._device)
        loss = self._passes(total, batch)
        micros = (time.perf_counter_ns() - began) // 1000
        norm, uses = self._norm_and_uses()
        self._ctx.device.synchronize()  # a collective that has failed shows here, before a weight changes
        return Taken(self._updated(step, rates, norm, share_of(loss, total), uses), micros)

    def flops(self, batch: Batch) -> float:
        with self._torch.autograd.set_multithreading_enabled(False):
            return super().flops(batch)

    def evaluate(self, step: int, batch: Batch, metrics: bytes) -> Measures:
        found = super().evaluate(step, batch, metrics)
        self._ctx.device.synchronize()  # a collective that has failed shows here
        return found

    @property
    def _collects(self) -> bool:
        return self._exchange.rank == 0

    def _forward(self, batch: Batch) -> tuple[Any, Any, Any]:
        with self._flow.checked():
            return super()._forward(batch)

    def _whole_outputs(self, outputs: Any) -> Any:
        classes = self._flow.classes
        if classes is None:
            return outputs
        lengths = [sum(stop - start for start, stop in pieces) for pieces in classes.pieces]
        return self._exchange.all_gather(outputs, 1, lengths)  # the axis of the classes, as the loss has it

    def _norm_and_uses(self) -> tuple[float, list[float]]:
        """L2 norm of the whole gradient, and how many shards used each parameter: the same numbers on all shards."""
        torch, names = self._torch, dict(self._model.named_parameters())
        own = [one.grad for name, one in names.items() if one.grad is not None and self._counts(name)]
        whole = torch.tensor([0.0, *self._trained.uses()], dtype=torch.float64, device=self._device)
        for one in own:
            whole[0] += (one.double().norm() if one.dtype.itemsize < 4 else one.norm().double()) ** 2
        square, *uses = self._exchange.all_reduce(whole).tolist()
        return math.sqrt(square) if square == square else math.nan, uses

    def _counts(self, name: str) -> bool:
        return name in self._cuts or self._exchange.rank == 0


def _probability(module: Any) -> bool:
    """It drops elements, as far as its attributes say."""
    given = getattr(module, "p" if "Dropout" in type(module).__name__ else "dropout", 0)
    return isinstance(given, int | float) and given > 0


def _hash_of(model: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.state_dict().items():
        if hasattr(value, "detach"):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(_bytes()).numpy())
    return digest.hexdigest()


def _bytes() -> Any:
    import torch

    return torch.uint8
