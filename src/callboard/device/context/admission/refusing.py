"""Refusals: calls that are not launched, and what an exception of a library means."""

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, Unrecoverable
from callboard.core.layout import OpenLayout
from callboard.device.context.blocks import Block
from callboard.device.context.libraries import Libraries, LibraryActor
from callboard.device.context.pending import Pending
from callboard.device.context.plans import Plan, Plans
from callboard.device.context.verdicts import Ledger
from callboard.device.protocol import Call

__all__ = ["Refusing"]

NO_MEMORY = Memory(0, 0)
"""Of a buffer whose op was refused: it can be named, and whoever reads it gets the op's error. An op that overwrites
all of it gives it memory."""


class Refusing:
    """Answers calls that are not launched.

    Args:
        device: Probed where a library fails in a way of its own.
        libraries: One that does so is made again.
        ledger: Told of the failures.
        plans, buffers: Those of the admission.
    """

    def __init__(
        self, device: AccelDevice, libraries: Libraries, ledger: Ledger, plans: Plans, buffers: dict[int, Block]
    ) -> None:
        self._device = device
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
        """As :meth:`refuse`: it reads what a failed op owed."""
        op = Pending(call.id, 0, None, ())
        self._ledger.inherit(op, source, f"{plan.tag} read what op {source.root} owed")
        self._fail_outputs(call, op, plan)

    def _fail_outputs(self, call: Call, op: Pending, plan: Plan) -> None:
        for i, place in enumerate(plan.places):
            block = self._buffers.get(call.places[2 * i]) if place.writes and 2 * i < len(call.places) else None
            if block is not None:
                block.source = op
        for i, buffer in enumerate(call.made):
            if buffer not in self._buffers:
                layout = plan.makes[i][2] if i < len(plan.makes) else None
                nbytes = 0 if layout is None or isinstance(layout, OpenLayout) else layout.nbytes
                block = self._buffers[buffer] = Block(NO_MEMORY, nbytes)
                block.source = op

    def classified(self, error: BaseException, plan: Plan) -> AccelError:
        """What an exception of a library means (DESIGN §7).

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if isinstance(error, ContextPoisoned | Unrecoverable):
            raise error
        if isinstance(error, AccelError) and not isinstance(error, LibraryError):
            return error
        dead = self._device.probe()
        if dead is not None:
            raise dead from error
        if isinstance(error, LibraryError):
            return error
        stem = plan.stem
        actor = self._libraries.actors.get(stem)
        if actor is not None:
            actor.restart(lambda: self._give_up(actor))
        return LibraryError(f"{plan.tag}: {type(error).__name__}: {error}; the {stem} handle was made again", stem)

    def _give_up(self, actor: LibraryActor) -> None:
        """Drop the plans of a library; its stream has been synchronised."""
        self._plans.forget(actor.stem)
        tracks = list({a.track: None for a in self._libraries.actors.values()})  # sources may be of others
        for track in tracks:
            track.poll()
        self._ledger.settle(tracks)  # what is done looks at how it ended, maybe with its plan's help
        self._plans.sweep()
