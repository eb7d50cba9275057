"""``Worker``: the resident actor that computes the stages of one device."""

import contextlib
import copy
import importlib
import math
import time
from collections.abc import Iterator
from typing import Any

from callboard.core.errors import ContextLost
from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.train.kinds import loss_in, loss_of, share_of
from callboard.train.pipeline.backward import NEEDS
from callboard.train.pipeline.messages import Assigned, Described, Finished, Outputs
from callboard.train.pipeline.routes import Ports
from callboard.train.pipeline.splitting import StageModule, ports_of, split
from callboard.train.pipeline.stage import Stage
from callboard.train.pipeline.values import Value, arrived, on_its_way
from callboard.train.replicas.measuring import Measures, added, measured
from callboard.train.replicas.randomness import building, seed_of, seeded
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.replicas.rehearsal import rehearse
from callboard.train.replicas.replica import Update
from callboard.train.replicas.trained import into_training
from callboard.train.running.firstsetup import SUPERVISION, FirstSetup
from callboard.train.states import State, pack

__all__ = ["Worker"]


class Worker(ResidentActor):
    """The stages of one device. A new instance, also after a loss, has the weights that the model was built with."""

    max_in_flight = 100_000
    supervision = SUPERVISION

    def __init__(self, assigned: Assigned) -> None:
        self._assigned = assigned
        self._first = FirstSetup(assigned.job.born)

    def prepare(self) -> None:
        with self._first.preparing():
            self._torch = torch = importlib.import_module("torch")
            job = self._assigned.job
            if job.threads is not None:
                torch.set_num_threads(job.threads)
            if job.deterministic:
                torch.use_deterministic_algorithms(True)
            if self._assigned.splits:
                importlib.import_module(NEEDS)
            self._parts, self._entry = self._built()

    def setup(self, ctx: HostContext) -> None:
        job = self._assigned.job
        self._ctx = ctx
        self._device = ctx.torch_device
        with self._first.setting_up(ctx):
            parts, self._parts = self._parts, {}
            self._stages = {number: Stage(number, part, job, self._device) for number, part in parts.items()}
            self._loss_of = None if job.loss is None else loss_of(job.loss, self._device)
        self._done = Update(-1)
        self._open = False
        self._metrics: bytes | None = None
        self._failed: Exception | None = None
        self._loss: Any = 0.0
        self._micros = self._flops = 0
        self._counter: Any = None

    def warm_up(self, ctx: HostContext) -> None:
        rehearse(self._assigned.job, ctx)

    def _built(self) -> tuple[dict[int, StageModule], list[str]]:
        """This device's parts of the model."""
        assigned = self._assigned
        own = assigned.stages
        if assigned.models is not None:
            modules = {number: self._module(assigned.models[number], number) for number in own}
            parts = {number: StageModule(module, ports_of(module)) for number, module in modules.items()}
            return parts, parts[0].ports.inputs if 0 in parts else []
        stages, entry = split(into_training(self._module(assigned.job.model, 0)), assigned.at)
        return {number: stages[number] for number in own}, entry

    def _module(self, model: Any, number: int) -> Any:
        torch = self._torch
        seed = self._assigned.job.seed
        if isinstance(model, torch.nn.Module):
            return copy.deepcopy(model)
        with building(seed_of(seed, "stage", number) if number else seed):
            module = model()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"model gave {module!r:.80}; it must give a torch.nn.Module")
        return module

    def describe(self) -> dict[int, Described]:
        """This device's stages."""
        described = {}
        for number, stage in self._stages.items():
            dtype = str(stage.parameters[0].dtype).removeprefix("torch.") if stage.parameters else ""
            prefix = f"{number}." if self._assigned.models is not None else ""
            weights = [name for name, one in stage.module.named_parameters() if one.requires_grad]
            names = list(stage.module.state_dict())
            described[number] = Described(stage.ports, self._entry, dtype, prefix, weights, names)
        return described

    # -- a step --------------------------------------------------------------------------------------------------------

    def run(self, calls: list[tuple[str, tuple[Any, ...]]]) -> Any:
        """Several of the following calls in one message; what the last one gives.

        Args:
            calls: For each the name of the method, and its arguments.
        """
        result = None
        for name, arguments in calls:
            result = getattr(self, name)(*arguments)
        return result

    def begin(self, after: int, count: bool = False, metrics: bytes | None = None) -> None:
        """Begin a step, from the beginning if it was begun before.

        Args:
            after: The step whose weights it needs; -1: any.
            count: Count its operations; it is not taken.
            metrics: Compute the forward passes of an evaluation, with these metrics; see :func:`.measured`.
        """
        if self._done.step != after >= 0:
            raise ContextLost("the stages of this device were made again, and have no weights yet")
        self._metrics = metrics
        self._measures: list[Measures] = []
        self._counter = None
        if count:
            from torch.utils.flop_counter import FlopCounterMode

            self._counter = FlopCounterMode(display=False)
        self._flops = 0
        self._loss, self._micros, self._failed = 0.0, 0, None
        self._open = True
        for stage in self._stages.values():
            stage.begin()
            try:
                stage.turn(metrics is None)
            except TypeError as error:  # all calls of this passage fail with it
                self._failed = error

    def forward(
        self,
        place: tuple[int, int, int],
        args: list[Value],
        named: dict[str, Value],
        last: tuple[Any, int, float, float] | None,
    ) -> Outputs:
        """The outputs of a stage.

        Args:
            place: Numbers of the step, the stage and the micro-batch; they decide the random numbers.
            args, named: What it takes.
            last: For the last stage: targets and samples of the micro-batch, its weight, and that of the whole batch.
        """
        with self._in_step():
            return self._forward(place, args, named, last)

    def _forward(
        self,
        place: tuple[int, int, int],
        args: list[Value],
        named: dict[str, Value],
        last: tuple[Any, int, float, float] | None,
    ) -> Outputs:
        torch, job = self._torch, self._assigned.job
        step, number, micro = place
        stage = self._stages[number]
        given: set[int] = set()
        tensors = [self._input(value, given) for value in args]
        by_name = {name: self._input(value, given) for name, value in named.items()}
        seeded(seed_of(job.seed, step, number, micro), self._device)
        training = self._metrics is None
        with (
            torch.autocast(self._device.type, torch.bfloat16, enabled=job.precision == "bf16"),
            torch.set_grad_enabled(training),
        ):
            outputs = stage.forward(micro, tensors, by_name, keep=training)
            if last is not None:
                return self._ended(stage, micro, outputs, *last)
        names, values = _values(stage.ports, outputs, number)
        if training:
            stage.backward_from(micro, values)
        return Outputs(names, [self._sent(value, given, number + 1) for value in values])

    def _ended(
        self, stage: Stage, micro: int, outputs: Any, targets: Any, count: int, weight: float, total: float
    ) -> Outputs:
        """The last stage gave these outputs for so many samples, with ``weight`` of ``total``."""
        wanted = outputs if self._loss_of is None else self._on_device(targets)
        mean = self._mean_loss(outputs, wanted)
        if self._metrics is not None:
            self._measures.append(measured(self._metrics, outputs, wanted, mean, count, weight, self._collected))
        else:
            counts = weight or not total  # else all targets are ignored
            if not mean.requires_grad:
                raise RuntimeError(
                    "the loss has no gradient: it does not depend on a weight that is trained, or was detached"
                )
            stage.backward_from(micro, [mean * share_of(weight, total) if counts else mean.new_zeros(())])
            self._loss += mean.detach().double() * weight if counts else 0.0
        return Outputs(None, [])

    def _collected(self, own: Any) -> State:
        return pack(own, self._done.step, 0, self._ctx.host, self._device)

    def backward(
        self, split: bool, number: int, micro: int, gradients: list[Value | None], so_far: list[Value | None]
    ) -> list[Value | None]:
        """The gradients of what a stage took.

        Args:
            split: Without the gradients of the weights.
            number, micro: Numbers of the stage and the micro-batch.
            gradients: Of what it gave; none for the last stage, which begins at the loss.
            so_far: Of what it took, from later stages that took it, too.
        """
        given: set[int] = set()
        with self._in_step():
            stage = self._stages[number]
            of_outputs = [self._gradient(value, given) for value in gradients]
            of_inputs = [self._gradient(value, given) for value in so_far]
            found = stage.backward(micro, of_outputs, of_inputs, split=split)
            return [None if one is None else self._sent(one, given, number - 1) for one in found]

    def weights(self, number: int, micro: int) -> None:
        """The gradients of a stage's weights, after those of its inputs."""
        with self._in_step():
            self._stages[number].weights(micro)

    def finish(self) -> Finished:
        """What the step gave here."""
        if self._metrics is not None:
            with self._in_step():
                self._open = False
            return Finished(0.0, [], self._micros, 0, added(self._measures))
        with self._in_step():
            norms = [norm for stage in self._stages.values() for norm in stage.norms()]
            loss = float(self._loss)
        return Finished(loss, norms, self._micros, self._flops)

    def update(self, step: int, rates: Rates, norm: float, loss: float) -> Update:
        """Take the step, unless the norm of the whole gradient is not finite.

        Args:
            step: Its number.
            rates: The step sizes.
            norm: L2 norm of the gradient of the whole model.
            loss: Mean loss of the batch.
        """
        clip, lr = self._assigned.job.gradient_clip, math.nan
        with self._in_step():
            self._open = False
        skipped = not math.isfinite(norm)
        for stage in self._stages.values():
            settings = rates.of(stage.rates, stage.number)
            if settings and math.isnan(lr):
                lr = settings[0]["lr"]
            if skipped:
                stage.abandon()
            else:
                stage.update(settings, 1.0 if clip is None else min(1.0, clip / (norm + 1e-6)))
        self._done = Update(step, norm, lr, skipped, loss, self._updates())
        return self._done

    def done(self) -> Update:
        """The last update; of step -1: this instance has not been given a state."""
        return self._done

    @contextlib.contextmanager
    def _in_step(self) -> Iterator[None]:
        """Count the time, and have all calls after a failure fail with it, until the next step begins."""
        if not self._open:
            raise ContextLost("the stages of this device were made again while the step was being done")
        if self._failed is not None:
            raise self._failed
        began = time.perf_counter_ns()
        try:
            with self._counter or contextlib.nullcontext():
                yield
            self._flops += self._counter.get_total_flops() if self._counter else 0
        except Exception as error:  # of the model, of the loss: whatever follows in this step has no use
            self._failed = error
            raise
        finally:
            self._micros += (time.perf_counter_ns() - began) // 1000

    def _sent(self, value: Any, given: set[int], to: int) -> Value:
        leaves = self._assigned.in_host_memory and to not in self._stages
        return on_its_way(value, self._ctx, given, in_host_memory=leaves)

    def _input(self, value: Value, given: set[int]) -> Any:
        tensor = arrived(value, self._device)
        if not isinstance(tensor, self._torch.Tensor):
            return tensor
        given.add(tensor.untyped_storage().data_ptr())
        return tensor.detach().requires_grad_() if value.needs_gradient else tensor

    def _gradient(self, value: Value | None, given: set[int]) -> Any:
        if value is None:
            return None
        tensor = arrived(value, self._device)
        given.add(tensor.untyped_storage().data_ptr())
        return tensor

    def _mean_loss(self, outputs: Any, targets: Any) -> Any:
        if self._loss_of is None:
            loss: Any = loss_in(outputs)
        else:
            loss = self._loss_of(outputs, targets)
        if not (isinstance(loss, self._torch.Tensor) and loss.numel() == 1):
            raise TypeError(f"the loss is {loss!r:.80}; it must be one number, the mean over the samples")
        return loss.reshape(())

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(self._on_device(item) for item in value)
        if isinstance(value, dict):
            return {key: self._on_device(item) for key, item in value.items()}
        return arrived(value, self._device)

    # -- weights -------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[int, Groups]:
        """The optimizer of each stage as it was before the first update."""
        if self._done.step < 0:
            raise ContextLost("the stages of this device were made again, and have no weights yet")
        return {number: stage.groups() for number, stage in self._stages.items()}

    def states(self) -> dict[int, State]:
        """The state of each stage, in host memory."""
        return {number: stage.state(self._done.step, self._ctx.host) for number, stage in self._stages.items()}

    def load(self, step: int, states: dict[int, State]) -> None:
        """Take the states of the stages, after that step. Without any: those that the model was built with."""
        self._done, self._open = Update(-1), False
        for number, state in states.items():
            self._stages[number].load(state)
        self._done = Update(step, updates=self._updates())

    def _updates(self) -> int:
        return next(iter(self._stages.values())).updates


def _values(ports: Ports, outputs: Any, number: int) -> tuple[list[str] | None, list[Any]]:
    if ports.outputs is not None:
        return ports.outputs, list(outputs)
    if isinstance(outputs, dict):
        return list(outputs), list(outputs.values())
    values = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    if not all(hasattr(value, "requires_grad") or value is None for value in values):
        raise TypeError(f"stage {number} gave {outputs!r:.80}; it must give tensors, in a tuple or a dict")
    return None, values
