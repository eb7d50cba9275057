"""``TensorParallelTrainer``: one model on several devices, each with its part of every layer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callboard.device.client.handle import Device
from callboard.train.job import Job
from callboard.train.kinds import Loss, Optimizer
from callboard.train.tensor.plan import check_plan
from callboard.train.tensor.shards import Shards
from callboard.train.trainer import Trainer

__all__ = ["TensorParallelTrainer"]


class TensorParallelTrainer(Trainer):
    """Trains a ``torch.nn.Module`` whose layers are cut over several devices; a lost device costs time, no progress.

    ::

        async with cb.TensorParallelTrainer(
            make_model,
            plan={"blocks.*.fc1": "column", "blocks.*.fc2": "row", "blocks.*.attention": "heads"},
            loss=cb.LossKind.CrossEntropy(),
            optimizer=cb.OptimizerKind.AdamW(lr=3e-4),
            devices=["cuda:0", "cuda:1"],
        ) as trainer:
            for x, y in batches:
                stats = await trainer.step((x, y))

    Every device gets the whole batch, and has some rows or columns of the planned weights, with the optimizer's state
    for these; what is not in the plan is on all. The numbers are those of one device, up to the order of additions.

    No device has what another one has. So when one is lost in a step, all go back to the last snapshot in host memory
    and repeat the steps since then with the batches that were kept, with the same numbers: at most ``snapshot_every``
    steps of time. When a device has stopped for good, the model is cut for the others.

    Checkpoints hold the whole model: one of two devices can be loaded on four, on one, or by a
    :class:`.DataParallelTrainer`.

    Args:
        model: A module, or a function that gives one with the same weights each time. It is built in host memory on
            each device's machine, and cut there.
        plan: The kind of each cut module, by its name or a pattern (``"blocks.*.fc1"``): ``"column"``, ``"row"``,
            ``"gathered"``, ``"embedding"``, ``"vocabulary"``, ``"heads"``, ``"sequence"`` or ``"scatter"``. ``"auto"``
            finds attention, pairs of linear layers, embeddings and the last layer of transformers by their names.
        optimizer, loss, devices, gradient_clip, schedule, micro_batch_size, precision, seed, deterministic, divisor,
            not_finite, peak_flops, flops_per_sample: See :class:`.DataParallelTrainer`.
        snapshot_every: Steps between two snapshots at most; each copies all weights and the optimizer's state to the
            host. There are more of them, as far as they take no more than 3 % of the time (not
            with ``not_finite="roll_back"``).

    Raises:
        TypeError, ValueError: A setting that cannot be.
    """

    def __init__(
        self,
        model: Any,
        *,
        plan: Mapping[str, str] | str,
        optimizer: Optimizer,
        loss: Loss | None,
        devices: Sequence[Device | str] = ("auto",),
        gradient_clip: float | None = None,
        schedule: Callable[[Any], Any] | None = None,
        micro_batch_size: int | None = None,
        precision: str = "f32",
        seed: int = 0,
        deterministic: bool = False,
        divisor: Callable[[Any], Any] | None = None,
        not_finite: str = "skip",
        snapshot_every: int = 20,
        flops_per_sample: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        job = Job(
            model, optimizer, loss, gradient_clip, schedule, micro_batch_size, precision, seed, deterministic, divisor
        )
        super().__init__(
            "TensorParallelTrainer", job, devices, not_finite, snapshot_every, flops_per_sample, peak_flops
        )
        check_plan(plan, loss)
        self._plan = plan if isinstance(plan, str) else dict(plan)

    def _participants(self, job: Job) -> Shards:
        return Shards(self._plan, job)

    @property
    def shard_count(self) -> int:
        """Parts that the model is cut into: one for each device."""
        return len(self.devices)

    async def set_devices(self, devices: Sequence[Device | str]) -> None:
        """Cut the model for these devices from the next step on.

        Args:
            devices: As for the trainer.

        Raises:
            BackendUnavailable, DeviceStopped: A device cannot be opened; the old ones stay.
        """
        await self._change(devices)
