"""``DataParallelTrainer``: one model on several devices, each with its part of every batch."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.actors.props import Props
from callboard.device.client.handle import Device
from callboard.train.job import Job
from callboard.train.kinds import Loss, Optimizer
from callboard.train.replicas.members import Members
from callboard.train.replicas.replica import Replica
from callboard.train.replicas.zero import ZeroReplica
from callboard.train.trainer import Trainer

__all__ = ["DataParallelTrainer"]

USE = "use 'zero1', or None: each device has all of the optimizer's state"
FSDP = (
    "torch's fully_shard needs process groups of torch.distributed, which cannot replace a lost device; use 'zero1' "
    "for a large state of the optimizer, TensorParallelTrainer or PipelineParallelTrainer for a large model"
)


class DataParallelTrainer(Trainer):
    """Trains a ``torch.nn.Module`` on several devices; a lost device costs time, and no progress.

    ::

        async with cb.DataParallelTrainer(
            make_model,
            loss=cb.LossKind.CrossEntropy(),
            optimizer=cb.OptimizerKind.AdamW(lr=3e-4),
            devices=["cuda:0", "cuda:1"],
        ) as trainer:
            for x, y in batches:
                stats = await trainer.step((x, y))

    Each step computes the gradient of the mean loss over the whole batch, as one device would: parts of different sizes
    are weighed by their samples. The replicas add their gradients up among themselves, and each updates its own weights
    with the same bits.

    When a device is lost in a step, the step is repeated as soon as the device has its next context, which gets the
    weights from another replica; numbers and random numbers of the repeat are those of the first attempt. A device that
    has stopped for good leaves, and the others go on. When all devices are lost at once, training starts at the last
    snapshot in host memory, and repeats the steps since then with the batches that were kept: at most
    ``snapshot_every`` steps of time.

    Args:
        model: A module, or a function that gives one. Replicas start with the same weights in any case.
        optimizer: One of :class:`.OptimizerKind`, or a function from parameters to a torch optimizer.
        loss: One of :class:`.LossKind`, or a function from outputs and targets to their mean loss; batches are then
            ``(inputs, targets)``, with a tuple or dict of inputs for a model that takes several. None: the model gives
            its loss (or a dict or an object with ``loss``) when it is called with the batch.
        devices: Open devices, or names of devices that the trainer opens, each in a process of its own with a hot
            standby, and closes at its end.
        shard: ``"zero1"``: each device has the optimizer's state of its share of the parameters only, updates these,
            and gets the others from their devices. The numbers are the same. When a device is lost, no other one has
            its share: all go back to the last snapshot. Optimizers that look at several parameters at once are refused.
        gradient_clip, schedule, micro_batch_size, precision, seed, deterministic, divisor: See :class:`.Job`.
        not_finite: What follows a gradient with NaN or infinity: ``"skip"`` the update (ten in a row are an error),
            ``"stop"``: raise :class:`.NotFinite`, or ``"roll_back"`` to the last snapshot, without the batches since:
            up to ``snapshot_every`` updates are lost, :attr:`.StepStats.undone` says how many.
        snapshot_every: Steps between two snapshots; each copies weights and optimizer state to the host's memory. One
            device alone has more of them, as far as they take no more than 3 % of the time.
        peak_flops: Operations per second that one device can do, for :attr:`.StepStats.mfu`.
        flops_per_sample: Operations that a sample costs, forward and backward; None: if ``peak_flops`` is given, they
            are counted once, before the first step.

    Raises:
        TypeError, ValueError: A setting that cannot be.
    """

    def __init__(
        self,
        model: Any,
        *,
        optimizer: Optimizer,
        loss: Loss | None,
        devices: Sequence[Device | str] = ("auto",),
        shard: str | None = None,
        gradient_clip: float | None = None,
        schedule: Callable[[Any], Any] | None = None,
        micro_batch_size: int | None = None,
        precision: str = "f32",
        seed: int = 0,
        deterministic: bool = False,
        divisor: Callable[[Any], Any] | None = None,
        not_finite: str = "skip",
        snapshot_every: int = 100,
        flops_per_sample: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        job = Job(
            model, optimizer, loss, gradient_clip, schedule, micro_batch_size, precision, seed, deterministic, divisor
        )
        super().__init__("DataParallelTrainer", job, devices, not_finite, snapshot_every, flops_per_sample, peak_flops)

        if shard not in (None, "zero1"):
            raise ValueError(f"DataParallelTrainer: shard is {shard!r}; {FSDP if shard == 'fsdp2' else USE}")
        self._shard = shard

    def _participants(self, job: Job) -> Members:
        kind = Replica if self._shard is None else ZeroReplica
        return Members(lambda job: Props(kind, job), job, partial=self._shard is not None)

    async def set_replicas(self, devices: Sequence[Device | str]) -> None:
        """Train on these devices from the next step on; those that come get the weights of those that stay.

        Args:
            devices: As for the trainer.

        Raises:
            BackendUnavailable, DeviceStopped: A device cannot be opened; the old ones stay.
        """
        await self._change(devices)
