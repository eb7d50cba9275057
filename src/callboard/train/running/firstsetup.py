"""``FirstSetup``: an error of the user's code while an actor is set up for the first time is told at once."""

import contextlib
from collections.abc import Iterator

from callboard.actors.supervision import Directive, OneForOne
from callboard.core.errors import AccelError
from callboard.device.protocol.residents.actor import HostContext
from callboard.device.protocol.residents.exceptions import is_out_of_memory

__all__ = ["SUPERVISION", "FirstSetup"]

_final: dict[int, BaseException] = {}
"""Errors after which there is no other attempt, by id, until their actor's strategy has decided."""


def _directive(error: BaseException) -> Directive | None:
    if _final.pop(id(error), None) is error:
        return Directive.STOP
    return Directive.RESUME if isinstance(error, Exception) else None


SUPERVISION = OneForOne(_directive, max_restarts=3, within=60.0)
"""As that of every resident actor, but the errors of a first setup stop the actor."""


class FirstSetup:
    """Whether an actor that cannot be set up tries again.

    In the generation of the device in which the actor was started, the model, the loss or the optimizer that the user
    gave cannot be made: the same would happen again. In a later one they could be made before, so the reason passes.
    Errors of callboard, of the system and of memory are tried again in any case.

    Args:
        born: The generation of the device when the actor was started.
    """

    def __init__(self, born: int) -> None:
        self._born = born
        self._early: Exception | None = None

    @contextlib.contextmanager
    def preparing(self) -> Iterator[None]:
        """Around ``prepare``, which knows no generation: its error is raised by ``setup``."""
        try:
            yield
        except Exception as e:  # of the user's code
            self._early = e

    @contextlib.contextmanager
    def setting_up(self, ctx: HostContext) -> Iterator[None]:
        """Around ``setup``.

        Raises:
            Exception: Raised in the block, or while preparing.
        """
        try:
            early, self._early = self._early, None
            if early is not None:
                raise early
            yield
        except Exception as e:  # of the user's code
            if ctx.generation == self._born and not (isinstance(e, AccelError | OSError) or is_out_of_memory(e)):
                _final[id(e)] = e
            raise
