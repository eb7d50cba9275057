"""``NvtxKernelTrace``: an NVTX range around each launch of a device's ops."""

import contextlib
from types import TracebackType
from typing import Self

from callboard.core.errors import ContextLost
from callboard.device.client.handle import Device

__all__ = ["NvtxKernelTrace"]

ANSWER = 30.0
"""Seconds that the host gets to load NVTX."""


class NvtxKernelTrace:
    """Shows ops in Nsight Systems, which attributes kernels to the range that launched them.

    ``async with NvtxKernelTrace(gpu): ...``, in a program that runs under ``nsys profile -t cuda,nvtx``. Without such a
    tool, the ranges go nowhere.

    Args:
        device: A device; its ops are marked in its context host, also in later contexts.
        domain: NVTX domain.

    Raises:
        ValueError: ``domain`` is empty.
    """

    def __init__(self, device: Device, domain: str = "callboard") -> None:
        if not domain:
            raise ValueError("domain is empty; give the ranges a name, such as 'callboard'")
        self._device = device
        self._domain = domain

    async def start(self) -> None:
        """Begin to mark ops.

        Raises:
            BackendUnavailable: ``nvtx`` is not installed where the context lives.
            RuntimeError: The device has such a trace already.
        """
        settings = self._device._actor.settings
        if settings.has("nvtx"):
            raise RuntimeError(f"{self._device.name} has an NvtxKernelTrace already: stop that first")
        settings.set("nvtx", self._domain)
        try:
            await self._device._answers.ask("nvtx", self._domain, timeout=ANSWER)
        except BaseException:  # also cancelled: later contexts are not to begin
            settings.forget("nvtx")
            raise

    async def stop(self) -> None:
        """End it."""
        settings = self._device._actor.settings
        on = settings.has("nvtx")
        settings.forget("nvtx")
        if on and not self._device.stopped:
            with contextlib.suppress(ContextLost):  # the next context is not told to begin
                await self._device._answers.ask("nvtx", None, timeout=ANSWER)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
