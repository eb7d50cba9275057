"""A device in a thread whose context is poisoned: run as a program, for its process is of no use afterwards.

Arguments: ``own`` or ``caller`` (the dispatcher), and ``alone`` or ``torch`` (torch works in the same process).
"""

import asyncio
import sys
import threading

import numpy as np
from tests.faults.cuda.actors import KINDS, Striker

import callboard as cb

BOUND = 60.0


async def main(dispatcher: str, beside: str) -> None:
    if beside == "torch":
        import torch

        theirs = torch.ones(1000, device="cuda")
    async with cb.System("poisoned") as system:
        dev = await system.device("cuda", isolation="thread", dispatcher=dispatcher)
        events = dev.events()
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        await striker.with_timeout(BOUND).call(Striker.pid)
        assert (await dev.put(np.arange(4.0)).get()).tolist() == [0, 1, 2, 3]
        strike = striker.call(Striker.strike, "illegal")
        async with asyncio.timeout(BOUND):
            (outcome,) = await asyncio.gather(strike, return_exceptions=True)
            told = [event async for event in events]
        assert isinstance(outcome, cb.Unrecoverable), repr(outcome)
        assert KINDS["illegal"] in str(outcome), outcome
        assert "isolation='process'" in str(outcome), outcome
        assert [type(event) for event in told] == [cb.Lost, cb.Stopped], told
        try:
            dev.put(np.ones(3))
        except cb.DeviceStopped:
            print("stopped")
        else:
            raise AssertionError("a stopped device took an array")
        async with asyncio.timeout(BOUND):
            await dev.close()
        print("closed")
    if beside == "torch":
        try:
            theirs.sum().item()
        except RuntimeError:
            print("torch is told, too")
    left = [t.name for t in threading.enumerate() if t.name.startswith("callboard-host")]
    assert not left, left


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    print("done", flush=True)
