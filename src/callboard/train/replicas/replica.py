"""``Replica``: the resident actor that holds a model and its optimizer beside a device, and takes steps."""

import copy
import importlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from callboard.core.errors import ContextLost
from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.train.batches import Batch, copied, in_micro_batches, rows_of
from callboard.train.job import Job
from callboard.train.kinds import loss_in, loss_of, optimizer_of, share_of
from callboard.train.replicas.buckets import Buckets
from callboard.train.replicas.exchange import Exchange
from callboard.train.replicas.measuring import Measures, added, measured
from callboard.train.replicas.randomness import building, seed_of, seeded
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.replicas.reducer import Reducer
from callboard.train.replicas.rehearsal import rehearse
from callboard.train.replicas.trained import Trained
from callboard.train.running.firstsetup import SUPERVISION, FirstSetup
from callboard.train.states import State, pack, unpack

if TYPE_CHECKING:
    from callboard.device.inside.device import LocalDevice

__all__ = ["Replica", "Taken", "Update"]


class Update(msgspec.Struct, frozen=True):
    """What an update did, the same on every replica.

    Attributes:
        step: Steps done, also those that were skipped; -1: this replica has no weights yet.
        norm: L2 norm of the gradient before it is clipped.
        lr: Step size.
        skipped: The gradient was not finite.
        loss: Mean loss of the samples of the whole batch.
        updates: Steps done that were not skipped.
    """

    step: int
    norm: float = math.nan
    lr: float = math.nan
    skipped: bool = False
    loss: float = math.nan
    updates: int = 0


class Taken(msgspec.Struct, frozen=True):
    """What a step gave on one actor.

    Attributes:
        update: The update.
        micros: Microseconds for the gradients of the samples that it computed.
    """

    update: Update
    micros: int


class Replica(ResidentActor):
    """One of the trainer's replicas. A new instance (also after a loss) has no weights until it is given some.

    A step changes nothing that a repeat would see before the gradients of all replicas are added up; from there on it
    is the same on all of them.
    """

    supervision = SUPERVISION

    def __init__(self, job: Job) -> None:
        self._job = job
        self._first = FirstSetup(job.born)

    def prepare(self) -> None:
        with self._first.preparing():
            self._torch = torch = importlib.import_module("torch")
            job = self._job
            if job.threads is not None:
                torch.set_num_threads(job.threads)
            if job.deterministic:
                torch.use_deterministic_algorithms(True)
            self._whole = self._built()

    def setup(self, ctx: HostContext) -> None:
        with self._first.setting_up(ctx):
            self._enter(ctx, ctx.device.beside())
            model, self._whole = self._whole, None
            self._use(model)
            self._reducer = Reducer(self._parameters, self._exchange)

    def _enter(self, ctx: HostContext, exchanging: "LocalDevice") -> None:
        self._ctx = ctx
        self._device = ctx.torch_device
        self._loss = None if self._job.loss is None else loss_of(self._job.loss, self._device)
        self._exchange = Exchange(exchanging)

    def _built(self) -> Any:
        """The model, on the host."""
        torch: Any
        torch, job = self._torch, self._job
        is_module = isinstance(job.model, torch.nn.Module)
        with building(job.seed):
            model = copy.deepcopy(job.model) if is_module else job.model()
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model gave {model!r:.80}; it must give a torch.nn.Module")
        return model

    def _use(self, model: Any) -> None:
        """Train this model."""
        self._model = model.to(self._device)
        parameters = [one for one in model.parameters() if one.requires_grad]
        if not parameters:
            raise ValueError("the model has no parameter that requires a gradient; there is nothing to train")
        self._trained = Trained(self._model, parameters)
        self._dtype = parameters[0].dtype
        self._parameters = parameters
        self._buffers = self._trained.buffers
        self._buckets, self._averages = self._new_buckets()
        self._optimizer = optimizer_of(self._job.optimizer, parameters)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._groups = Groups.of(self._optimizer)
        self._updates = 0
        self._done = Update(-1)
        self._before: tuple[int, list[Any]] = (0, [])

    def warm_up(self, ctx: HostContext) -> None:
        rehearse(self._job, ctx)
        Exchange(ctx.device.beside()).rehearse(self._torch.zeros(1, device=ctx.torch_device))

    # -- among the others ----------------------------------------------------------------------------------------------

    def enter(self, rank: int, size: int) -> Update:
        """Be this one of so many; the last update."""
        return self._done

    def offer(self, world: int, rank: int, size: int) -> bytes:
        """See :meth:`.Exchange.offer`."""
        return self._exchange.offer(world, rank, size)

    def join(self, offers: list[bytes]) -> str:
        """See :meth:`.Exchange.join`."""
        return self._exchange.join(offers)

    def look(self) -> str:
        """See :meth:`.Exchange.look`."""
        return self._exchange.look()

    # -- a step --------------------------------------------------------------------------------------------------------

    def take(self, step: int, total: float, batch: Batch, rates: Rates) -> Taken:
        """Take a step together with the other replicas: add the gradients up, and make the update.

        Args:
            step: Number of the step; with that of the replica, it decides the random numbers.
            total: Weight of the whole batch, see :meth:`.Job.weight_of`.
            batch: This replica's samples; may be none.
            rates: The step sizes.

        Raises:
            ContextLost: This replica has not taken the step before.
        """
        self._check_follows(step)
        began = time.perf_counter_ns()
        self._restore(step)
        if self._reducer.lent:
            self._buckets, self._averages = self._new_buckets()
        self._reducer.begin(self._buckets)
        seeded(seed_of(self._job.seed, step, self._exchange.rank), self._device)
        loss = self._passes(total, batch, self._reducer.watching)
        micros = (time.perf_counter_ns() - began) // 1000
        whole = self._torch.tensor([loss, *self._trained.uses()], dtype=self._torch.float64, device=self._device)
        self._reducer.finish(whole, self._averages)  # a collective that has failed shows here: no weight has changed
        loss, *uses = whole.tolist()
        return Taken(self._updated(step, rates, self._buckets.norm(), share_of(loss, total), uses), micros)

    def _check_follows(self, step: int) -> None:
        if self.done().step != step - 1:
            raise ContextLost(f"the device was lost, and has no weights of step {step - 1}")

    def _passes(
        self, total: float, batch: Batch, last: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> float:
        """Forward and backward pass, with the gradients in the buckets; the sum of the losses, each by its weight.

        Args:
            total, batch: See :meth:`take`.
            last: The context of the last backward pass.
        """
        torch = self._torch
        self._buckets.zero()
        self._trained.begin()
        loss, left = 0.0, rows_of(batch)
        for some, count in self._micro_batches(batch):
            left -= count
            with self._autocast():
                mean = self._mean_loss(some)
            weight = self._job.weight_of(some, count)
            if total and not weight:
                continue  # all targets are ignored
            watched = nullcontext() if left else last()
            with watched, torch.autograd.set_multithreading_enabled(False):  # collectives are called by this thread
                (mean * share_of(weight, total)).backward()
            loss += mean.detach().double() * weight
        self._buckets.collect()
        self._trained.settle()
        self._averages.collect()
        return float(loss)

    def _micro_batches(self, batch: Batch) -> Iterator[tuple[Batch, int]]:
        return in_micro_batches(batch, self._job.micro_batch_size)

    def _autocast(self) -> Any:
        return self._torch.autocast(self._device.type, self._torch.bfloat16, enabled=self._job.precision == "bf16")

    def evaluate(self, step: int, batch: Batch, metrics: bytes) -> Measures:
        """Loss and metrics of samples in evaluation mode; changes nothing.

        Args:
            step: The last step; this replica must have its weights.
            batch: Samples; may be none.
            metrics: See :func:`.measured`.
        """
        if self.done().step != step:
            raise ContextLost("the device was lost, and has no weights yet")
        begun, _ = self._before
        if begun > step:  # a step that was not completed has changed running means
            self._restore(begun)
        seeded(seed_of(self._job.seed, "evaluation", step), self._device)
        parts = []
        collect = self._collected if self._collects else None
        self._trained.turn(False)
        try:
            with self._torch.no_grad():
                for some, count in self._micro_batches(batch):
                    with self._autocast():
                        outputs, targets, loss = self._forward(some)
                        outputs = self._whole_outputs(outputs)
                        weight = self._job.weight_of(some, count)
                        parts.append(measured(metrics, outputs, targets, loss, count, weight, collect))
        finally:
            self._trained.turn(True)
        return added(parts)

    @property
    def _collects(self) -> bool:
        """No other one has the same outputs, and sends them."""
        return True

    def _collected(self, own: Any) -> State:
        return pack(own, self._done.step, self._updates, self._ctx.host, self._device)

    def _whole_outputs(self, outputs: Any) -> Any:
        """What metrics see."""
        return outputs

    def flops(self, batch: Batch) -> float:
        """Operations of the forward and backward pass for a sample; changes nothing."""
        from torch.utils.flop_counter import FlopCounterMode

        before = [buffer.clone() for buffer in self._buffers]
        with FlopCounterMode(display=False) as counter:
            self._mean_loss(batch).backward()
        self._trained.settle()
        for buffer, value in zip(self._buffers, before, strict=True):
            buffer.copy_(value)
        return float(counter.get_total_flops()) / max(1, rows_of(batch))

    def _updated(self, step: int, rates: Rates, norm: float, loss: float, uses: list[float]) -> Update:
        """Take the step with the gradients in the buckets.

        Args:
            step, rates: See :meth:`take`.
            norm: Of the gradients.
            loss: Mean loss of the batch.
            uses: See :meth:`.Trained.without`.
        """
        settings = rates.of(self._rates)
        skipped = not math.isfinite(norm)
        if not skipped:
            for group, own in zip(self._optimizer.param_groups, settings, strict=True):
                group.update(own)
            if self._job.gradient_clip is not None:
                self._buckets.scale(min(1.0, self._job.gradient_clip / (norm + 1e-6)))
            self._trained.without(uses)
            self._done = Update(-1)  # of no step, if it fails midway
            self._update()
            self._updates += 1
        else:
            self._restore(step)  # running means of what was not finite
            self._averages.collect()
        self._averages.spread()
        self._done = Update(step, norm, settings[0]["lr"], skipped, loss, self._updates)
        self._before = (0, [])
        return self._done

    def _update(self) -> None:
        """New weights, from the gradients in the buckets."""
        self._optimizer.step()

    def done(self) -> Update:
        """The last update."""
        return self._done

    def _new_buckets(self) -> tuple[Buckets, Buckets]:
        averages = [one for one in self._buffers if one.is_floating_point()]
        return Buckets(self._parameters), Buckets(averages, of="values")

    def _mean_loss(self, batch: Batch) -> Any:
        return self._forward(batch)[2]

    def _forward(self, batch: Batch) -> tuple[Any, Any, Any]:
        """The outputs for a batch, its targets (all of it, where the model gives its loss), and the mean loss."""
        given = self._on_device(batch)
        inputs, targets = (given, given) if self._loss is None else given
        outputs = self._model(**inputs) if isinstance(inputs, dict) else self._model(*_several(inputs))
        loss = loss_in(outputs) if self._loss is None else self._loss(outputs, targets)
        if not (isinstance(loss, self._torch.Tensor) and loss.numel() == 1):
            raise TypeError(f"the loss is {loss!r:.80}; it must be one number, the mean over the samples")
        return outputs, targets, loss.reshape(())

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._on_device(item) for item in value)
        if isinstance(value, dict):
            return {key: self._on_device(item) for key, item in value.items()}
        array = np.asarray(value)
        return copied(array, self._device, self._dtype if array.dtype.kind == "f" else None)

    def _restore(self, step: int) -> None:
        """Buffers as they were before the step, if it began already."""
        self._trained.settle()
        begun, before = self._before
        if begun == step:
            for buffer, value in zip(self._buffers, before, strict=True):
                buffer.copy_(value)
        else:
            self._before = step, [buffer.clone() for buffer in self._buffers]

    # -- weights -------------------------------------------------------------------------------------------------------

    def begin(self) -> Update:
        """Take the weights that the model was built with."""
        self._done = Update(0)
        return self._done

    def groups(self) -> Groups:
        """The optimizer as it was before the first update."""
        if self.done().step < 0:
            raise ContextLost("the device was lost, and has no weights yet")
        return self._groups.beginning_with(map(float, self._rates))

    def state(self, on_host: bool, weights: bool = True) -> State:
        """Weights, the optimizer's state and what belongs to them.

        Args:
            on_host: Copied now, as NumPy arrays; else refs to the arrays themselves.
            weights: With the weights.
        """
        if self.done().step < 0:
            raise ContextLost("the device was lost, and has no weights yet")
        begun, _ = self._before
        if begun > self._done.step:  # a step that was not completed has changed running means
            self._restore(begun)
        optimizer = {**self._optimizer.state_dict(), "names": self._names()}
        own = self._model.state_dict() if weights else {}, optimizer, self._rates
        share = self._ctx.host if on_host else self._ctx.ref
        return pack(own, self._done.step, self._updates, share, self._device)

    def load(self, state: State, done: Update | None = None) -> Update:
        """Take another replica's state.

        Args:
            state: The state.
            done: The update after which it is. None: its figures are not known.
        """
        model, optimizer, rates = unpack(state)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(self._own(optimizer))
        self._rates = rates
        self._updates = state.updates
        self._done = done or Update(state.step, updates=state.updates)
        self._before = (0, [])
        return self._done

    def _names(self) -> list[str]:
        """Names of the parameters, by their numbers in the optimizer's state."""
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        return [names[id(one)] for group in self._optimizer.param_groups for one in group["params"]]

    def _own(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        """What this replica keeps of an optimizer's state."""
        return optimizer


def _several(inputs: Any) -> tuple[Any, ...]:
    return inputs if isinstance(inputs, tuple) else (inputs,)
