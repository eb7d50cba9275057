"""``Asked``: messages for objects whose methods are marked as their handlers."""

from typing import Any, Self, TypeVar

from callboard.actors import Request
from callboard.actors._runtime.table import handler_names
from callboard.actors.errors import UnhandledMessage
from callboard.device.client.handle import Device
from callboard.realtime.base.commands import Commands

__all__ = ["Asked", "Commanded"]

R = TypeVar("R")


class Asked:
    """Answers messages by the methods that are marked ``@Message.handles``.

    Args:
        device: Open.

    Raises:
        TypeError: ``device`` is none.
    """

    def __init__(self, device: Device) -> None:
        given: Any = device
        if not isinstance(given, Device):
            raise TypeError(f"device is {device!r:.80}; pass an open device, such as that of cb.device()")
        self._device = device

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


class Commanded(Asked):
    """Has a state on the device from its start to its stop, which commands change."""

    _commands: Commands[Any]

    async def start(self) -> Self:
        """Put the state on the device."""
        await self._commands.start()
        return self

    async def stop(self) -> None:
        """Take no more calls, and give the device's memory back."""
        await self._commands.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
