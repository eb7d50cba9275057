"""``Asked``: messages for objects whose methods are marked as their handlers."""

from typing import Any, TypeVar

from callboard.actors import Request
from callboard.actors._runtime.table import handler_names
from callboard.actors.errors import UnhandledMessage

__all__ = ["Asked"]

R = TypeVar("R")


class Asked:
    """Answers messages by the methods that are marked ``@Message.handles``."""

    async def ask(self, request: Request[Any, R]) -> R:
        """Answer a message: ``await simulation.ask(Step(dt=0.01))``.

        Raises:
            UnhandledMessage: This blueprint does not take it.
        """
        name = next((name for kind, name in handler_names(type(self)).items() if isinstance(request, kind)), None)
        if name is None:
            raise UnhandledMessage(f"{type(self).__name__} has no handler for {type(request).__qualname__}")
        answer: R = await getattr(self, name)(request)
        return answer
