"""A supervisor of one's own: a lost context, no memory, a library that fails, a device that cannot be used any more."""

import asyncio
import sys

import numpy as np

import callboard as cb
from callboard.testing.faults import open_faulty


class Mine(cb.DeviceSupervisor):
    """Notes what it decides; each piece differs from the default."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def on_context_lost(self, error: cb.ContextPoisoned, now: float) -> cb.DeviceDecision:
        self.notes.append("another context, after a tenth of a second")
        return cb.DeviceDecision(cb.Directive.RESTART, pause=0.1)

    def on_out_of_memory(self, error: cb.OutOfMemory, now: float) -> cb.DeviceDecision:
        self.notes.append("trim; if that does not help, another context")
        return cb.DeviceDecision(cb.Directive.ESCALATE, trim=True)

    def on_library_failure(self, error: cb.LibraryError, now: float) -> cb.Directive:
        self.notes.append("a library that fails is not trusted again: another context")
        return cb.Directive.ESCALATE

    def on_unrecoverable(self, error: cb.Unrecoverable, now: float) -> cb.DeviceDecision:
        self.notes.append("stop, and tell the operator")
        return cb.DeviceDecision(cb.Directive.STOP, reason="replace the board in slot 3")


@cb.retrying(cb.ContextLost, attempts=2)
async def works(gpu: cb.Device) -> bool:
    return bool((await gpu.put(np.ones(2)).get()).all())


async def provoke(kind: str, gpu: cb.Device, mine: Mine) -> None:
    try:
        a = gpu.put(np.eye(512))
        await (a @ a)
    except cb.AccelError as e:
        print(f"{kind}: the operation fails with {type(e).__name__}")
    mine.notes.append(gpu.health().error or f"it goes on: {await works(gpu)}")
    print("\n".join(f"    {note}" for note in mine.notes))


async def main(name: str) -> None:
    for kind in ("context_poisoned", "library", "unrecoverable"):
        async with open_faulty(kind, at=2, backend=name, supervisor=(mine := Mine())) as gpu:
            await provoke(kind, gpu, mine)
    async with cb.device(name, supervisor=(mine := Mine()), isolation="process", memory_limit=1 << 20) as gpu:
        await provoke("no memory", gpu, mine)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
