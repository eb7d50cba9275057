"""``PipelineParallelTrainer``: a model in stages, which devices compute for several parts of a batch at once."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.device.client.handle import Device
from callboard.train.batches import Batch
from callboard.train.job import Job
from callboard.train.kinds import Loss, Optimizer
from callboard.train.pipeline.crew import Crew
from callboard.train.pipeline.messages import Assigned
from callboard.train.pipeline.plans import Plan
from callboard.train.pipeline.schedules.tables import SCHEDULES
from callboard.train.trainer import Trainer

__all__ = ["PipelineParallelTrainer"]

NAME = "PipelineParallelTrainer"


class PipelineParallelTrainer(Trainer):
    """Trains a model that is cut into stages, on a device each; a lost device costs time, and no progress.

    ::

        async with cb.PipelineParallelTrainer(
            make_model,
            split=["layers.8", "layers.16", "layers.24"],
            micro_batch_size=4,
            loss=cb.LossKind.CrossEntropy(),
            optimizer=cb.OptimizerKind.AdamW(lr=3e-4),
            devices=["cuda:0", "cuda:1", "cuda:2", "cuda:3"],
        ) as trainer:
            stats = await trainer.step((x, y))

    A batch passes the stages in micro-batches. Their gradients add up to the gradient of the mean loss over the batch,
    in the order of the micro-batches: they are those of one device that computes the micro-batches one after the other,
    bit by bit, under every schedule. The norm for ``gradient_clip`` is that of the whole model's gradient. Each stage
    has an optimizer of its own.

    The outputs of a stage are the arguments of the next one. A stage that returns a dict gives its values names: every
    later stage whose ``forward`` has a parameter of that name gets it, and its gradient comes back the same way. A
    model that is cut by this trainer needs nothing of this: values that pass several cuts are found.

    When a device is lost in a step, it gets its stages again, all stages go back to the last snapshot in host memory,
    and the steps since then are repeated with the batches that were kept; numbers and random numbers are those of a run
    without the loss. The stages of a device that has stopped for good are dealt out to the others.

    Args:
        model: A module, or a function that gives one, which is cut; or a list of stages, each a module or a function.
        optimizer: One of :class:`.OptimizerKind`, or a function from parameters to a torch optimizer, called for each
            stage.
        loss: See :class:`.DataParallelTrainer`; with None the last stage gives the loss.
        devices: See :class:`.DataParallelTrainer`; in the order of their stages.
        split: Names of the modules with which the stages after the first one begin, in the order of their calls.
        stages: Number of stages, cut so that each has about as many weights; None: one for each device, two with
            ``"interleaved"``. A device may have several.
        pipeline_schedule: ``"gpipe"``, ``"1f1b"``, ``"eager-1f1b"``, ``"interleaved"`` or ``"zero-bubble"``, see
            :func:`.simulate_pipeline`.
        micro_batch_size: Samples of a micro-batch; the last one may have fewer. None: four micro-batches for each
            device.
        trim: Called with each micro-batch, gives what passes the stages: cut padding here, for example. The number of
            samples stays.
        gradient_clip, schedule, precision, seed, deterministic, divisor: See :class:`.Job`.
        not_finite, flops_per_sample, peak_flops: See :class:`.DataParallelTrainer`.
        snapshot_every: Steps between two snapshots at most; each copies weights and optimizer state to the host's
            memory. There are more of them, as far as they take no more than 3 % of the time
            (not with ``not_finite="roll_back"``).

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
        split: Sequence[str] | None = None,
        stages: int | None = None,
        pipeline_schedule: str = "1f1b",
        micro_batch_size: int | None = None,
        trim: Callable[[Batch], Batch] | None = None,
        gradient_clip: float | None = None,
        schedule: Callable[[Any], Any] | None = None,
        precision: str = "f32",
        seed: int = 0,
        deterministic: bool = False,
        divisor: Callable[[Any], Any] | None = None,
        not_finite: str = "skip",
        snapshot_every: int = 10,
        flops_per_sample: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        if pipeline_schedule not in SCHEDULES:
            known = ", ".join(map(repr, SCHEDULES))
            raise ValueError(f"{NAME}: pipeline_schedule is {pipeline_schedule!r}; use one of {known}")
        if trim is not None and not callable(trim):
            raise TypeError(f"{NAME}: trim is {trim!r:.80}; pass a function of a micro-batch, or None")
        count = 1 if isinstance(devices, str | Device) else len(devices)
        models = _models(model, split, stages)
        at = _cuts(split, stages, count * (2 if pipeline_schedule == "interleaved" else 1))
        last = (len(models) if models is not None else at if isinstance(at, int) else len(at) + 1) - 1
        if count > last + 1:
            raise ValueError(f"{NAME}: {count} devices for {last + 1} stages; each device has at least one stage")
        whole = model if models is None else models[0]
        job = Job(
            whole, optimizer, loss, gradient_clip, schedule, micro_batch_size, precision, seed, deterministic, divisor
        )
        super().__init__(NAME, job, devices, not_finite, snapshot_every, flops_per_sample, peak_flops)
        self._cut = at, models, last
        self._plan = Plan(pipeline_schedule, micro_batch_size, trim, job)

    def _participants(self, job: Job) -> Crew:
        at, models, last = self._cut
        given = None if models is None else [self._files.of(model) for model in models]
        return Crew(Assigned(job, at, given, last, splits=self._plan.schedule == "zero-bubble"), self._plan)

    def _models(self) -> Sequence[Any]:
        return super()._models() if self._cut[1] is None else self._cut[1]


def _models(model: Any, split: object, stages: object) -> list[Any] | None:
    """The stages, if they are given one by one."""
    if not isinstance(model, list | tuple) and type(model).__name__ != "ModuleList":
        return None
    models = list(model)
    for number, one in enumerate(models):
        if not callable(one):
            raise TypeError(f"{NAME}: stage {number} is {one!r:.80}; pass a torch.nn.Module, or a function giving one")
    if not models:
        raise ValueError(f"{NAME}: model is an empty list; pass at least one stage")
    if split is not None or stages is not None:
        raise ValueError(f"{NAME}: model is a list of {len(models)} stages; leave split and stages out")
    where: dict[int, int] = {}
    for number, one in enumerate(models):
        for parameter in one.parameters() if hasattr(one, "named_parameters") and not isinstance(one, type) else ():
            if where.setdefault(id(parameter), number) != number:
                first = where[id(parameter)]
                raise ValueError(
                    f"{NAME}: stages {first} and {number} share a weight, which would become two; have one stage use it"
                )
    return models


def _cuts(split: Sequence[str] | None, stages: int | None, count: int) -> int | tuple[str, ...]:
    if split is not None and stages is not None:
        raise ValueError(f"{NAME}: pass split or stages, not both")
    if isinstance(split, str) or (split is not None and not all(isinstance(name, str) for name in split)):
        raise TypeError(f"{NAME}: split is {split!r:.80}; pass a list of names of modules, as in model.named_modules()")
    if stages is not None and stages < 1:
        raise ValueError(f"{NAME}: stages is {stages}; it is at least 1")
    return tuple(split) if split is not None else stages if stages is not None else max(1, count)
