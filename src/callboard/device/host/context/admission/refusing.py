"""Refusals: calls that are not launched, and the translation of library exceptions."""

from functools import partial

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, OutOfMemory, Unrecoverable
from callboard.core.layout import OpenLayout
from callboard.device.host.context.admission.deciding import Deciding
from callboard.device.host.context.admission.graphs.replay import StepFailed, noted
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.host.context.blocks import Block
from callboard.device.host.context.ledger import Ledger
from callboard.device.host.context.libraries import Libraries, LibraryActor
from callboard.device.host.context.pending import FAILED, Pending
from callboard.device.host.context.plans.cache import Plans
from callboard.device.host.context.plans.plan import Plan
from callboard.device.protocol.messages import Call

__all__ = ["Refusing"]

NO_MEMORY = Memory(0, 0)
"""Placeholder for the output of a refused op: reading it raises that op's error. An op that overwrites all of it gives
it memory."""


class Refusing:
    """Answers calls that are not launched.

    Args:
        device: Probed where a library fails in a way of its own.
        libraries: One that does so is made again.
        ledger: Notified of the failures.
        deciding: Decides what follows.
        plans, buffers: Shared with the admission.
    """

    def __init__(
        self,
        device: AccelDevice,
        libraries: Libraries,
        ledger: Ledger,
        deciding: Deciding,
        plans: Plans,
        buffers: dict[int, Block],
    ) -> None:
        self._device = device
        self._deciding = deciding
        self._libraries = libraries
        self._ledger = ledger
        self._plans = plans
        self._buffers = buffers

    def refuse(self, call: Call, plan: Plan, error: BaseException) -> None:
        """Answer a call that is not launched; everything it would have written fails for its readers."""
        op = Pending(call.id, 0, None, ())
        self._ledger.refuse(op, error)
        self._fail_outputs(call, op, plan)

    def inherit(self, call: Call, plan: Plan, source: Pending) -> None:
        """Like :meth:`refuse`, for an op that reads the output of a failed op."""
        op = Pending(call.id, 0, plan, ())
        self._ledger.inherit(op, source)
        op.plan = None
        self._fail_outputs(call, op, plan)

    def short(self, call: Call, plan: Plan, error: OutOfMemory) -> None:
        """Like :meth:`refuse`, for lack of memory: of an output that had none before, it is the failure of that op."""
        for i, binding in enumerate(plan.bindings):
            block = self._buffers.get(call.bindings[2 * i]) if binding.writes and 2 * i < len(call.bindings) else None
            if block is not None and not block.address and block.source is not None and block.source.state == FAILED:
                self.inherit(call, plan, block.source)
                return
        self.refuse(call, plan, error)

    def _fail_outputs(self, call: Call, op: Pending, plan: Plan) -> None:
        if plan.recording and call.numbers and not call.numbers[0]:
            return  # a recording is made ready: nothing was to be written
        for i, binding in enumerate(plan.bindings):
            block = self._buffers.get(call.bindings[2 * i]) if binding.writes and 2 * i < len(call.bindings) else None
            if block is not None:
                block.source = op
        for i, buffer in enumerate(call.outputs):
            if buffer not in self._buffers:
                layout = plan.makes[i][2] if i < len(plan.makes) else None
                nbytes = 0 if layout is None or isinstance(layout, OpenLayout) else layout.nbytes
                block = self._buffers[buffer] = Block(NO_MEMORY, nbytes)
                block.source = op

    def classified(self, error: BaseException, plan: Plan) -> AccelError:
        """The :class:`AccelError` to report for an exception of a library.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if isinstance(error, StepFailed):
            assert error.__cause__ is not None
            return noted(self.classified(error.__cause__, error.plan), error.note)
        if isinstance(error, ContextPoisoned | Unrecoverable):
            raise error
        short = shortage(error, plan.tag)
        if short is not None:
            self._deciding.memory(plan.tag, short)
            return short
        if isinstance(error, AccelError) and not isinstance(error, LibraryError):
            return error
        dead = self._device.probe()
        if dead is not None:
            raise dead from error
        lib = plan.lib
        if not isinstance(error, LibraryError):
            text = f"{plan.tag}: {type(error).__name__}: {error}; {self._deciding.outlook(lib)}"
            error = LibraryError(text, lib, unexpected=True)
        self._deciding.library(plan.tag, error, partial(self._restart, lib))
        return error

    def at_end(self) -> None:
        """Handle failures of ops that were found when they were done; their errors are known.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        while failures := self._ledger.failures:
            self._ledger.failures = []
            for error, plan in failures:
                self.classified(error, plan)

    def _restart(self, lib: str) -> None:
        actors = self._libraries.of(lib)
        for actor in actors:  # the plans are the library's, whichever stream they run on
            actor.restart(partial(self._give_up, actor) if actor is actors[-1] else _nothing)

    def _give_up(self, actor: LibraryActor) -> None:
        """Drop the plans of a library; its stream has been synchronised."""
        for _, plan in self._plans.recordings_of(actor.lib):  # their replays use the handle on another stream
            plan.timeline.finish()
        self._plans.forget(actor.lib)
        timelines = list({a.timeline: None for a in self._libraries.actors.values()})  # sources may be of others
        for timeline in timelines:
            timeline.poll()
        self._ledger.settle(timelines)  # settling a completed op reads its outcome, possibly with its plan's help
        self._plans.sweep()


def _nothing() -> None:
    """The plans are dropped later."""
