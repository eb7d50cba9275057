"""``Graphs``: the recordings of a context. A recording is a plan, made of the plans of its ops."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.core.backend import AccelDevice
from callboard.core.errors import ShapeError
from callboard.device.host.context.admission.graphs.lanes import Lanes
from callboard.device.host.context.admission.graphs.replay import RecordedStep, Replay, noted
from callboard.device.host.context.plans.cache import GRAPH, Plans
from callboard.device.host.context.plans.plan import Plan, unreadable
from callboard.device.host.context.timelines import Timeline
from callboard.device.protocol.messages import ProtocolError
from callboard.device.protocol.recording import Step, read_script

if TYPE_CHECKING:
    from callboard.device.host.context.streams import SharedStreams

__all__ = ["GraphActor", "Graphs"]


class GraphActor:
    """Runs replays on a separate stream, since a recording may have ops of several libraries.

    Attributes:
        lib: ``"graph"``.
        timeline: Timeline of its stream.
        lanes: The streams that are captured; None if the device records nothing.
        max_plans: Recordings that a host keeps; those used least recently are recorded again when they are used.
    """

    lib = GRAPH
    has_lanes = False
    max_plans = 1024

    def __init__(self, device: AccelDevice, timeline: Timeline) -> None:
        self.timeline = timeline
        recorder = device.recording_stream()
        self.lanes = None if recorder is None else Lanes(device, recorder)


class Graphs:
    """Makes the plans of recordings.

    Args:
        device: Device of the context.
        streams: Assigns the replays their stream.
        plans: The plans of the admission.
        plan_of: Returns the plan of an op's signature, creating it if necessary.
    """

    def __init__(
        self,
        device: AccelDevice,
        streams: "SharedStreams",
        plans: Plans,
        plan_of: Callable[[bytes], Plan],
    ) -> None:
        self._device = device
        self._streams = streams
        self._plans = plans
        self._plan_of = plan_of
        self._actor: GraphActor | None = None

    def plan(self, signature: bytes) -> Plan:
        """The plan of a recording, whose ops' plans :meth:`advance` gets."""
        try:
            script = read_script(signature)
        except ProtocolError as e:
            return unreadable(ShapeError(str(e)))
        if self._actor is None:
            self._actor = GraphActor(self._device, self._streams.acquire(GRAPH))
        replay = Replay(self._device, self._actor.timeline, self._actor.lanes, script)
        ordered = [lib for lib in sorted(replay.libs) if lib != "memory"]  # whose calls have no order of their own
        plan = Plan.of_recording(script, (GRAPH, *ordered))
        plan.state = replay
        plan.library = self._actor
        for step in script.steps:
            self._one(step)
        for step in script.steps:  # again: to make one plan may end in giving up others of its library
            one = self._one(step)
            one.pins += 1
            replay.steps.append(RecordedStep(one, step))
        self._plans.add(signature, plan)
        return plan

    def _one(self, step: Step) -> Plan:
        return self._plans.by_signature.get(step.signature) or self._plan_of(step.signature)

    def advance(self, plan: Plan) -> Plan | None:
        """Make the plan ready, or refuse it, if its ops' plans are; else one that is not."""
        replay: Replay = plan.state
        for step in replay.steps:
            if not step.plan.ready and step.plan.error is None:
                return step.plan
        for at, step in enumerate(replay.steps):
            error = step.plan.error or step.unfit(replay.operands) or replay.refused(at)
            if error is not None:
                plan.refuse(noted(error, replay.named(at)))
                self._plans.release_recording(plan.recording)
                return None
        timelines = [step.plan.timeline for step in replay.steps if step.plan.lib != "memory"]
        plan.beside = tuple(dict.fromkeys(t for t in timelines if t is not plan.timeline))
        plan.calm = replay.is_brief
        plan.launch = replay.launch
        return None

    def stats(self, recording: int) -> dict[str, object] | None:
        """Figures of a recording, None if this context has not been sent it."""
        plan = self._plans.recording(recording)
        return None if plan is None else plan.state.stats()
