"""A loop that the device runs by itself: a plate cools until no point of it is above a limit.

The loop is a block of a recording, around the kernel of ``user_kernel.py``: one message, and on CUDA one launch. The
application does not know how many turns it takes, and is not asked in between.
"""

import asyncio
import sys

import numpy as np
from user_kernel import draw, heat_step

import callboard as cb

hottest = cb.reduction("max(u)")
above = cb.elementwise("peak > limit")


async def main(which: str) -> None:
    plate = np.zeros((64, 128), "f4")
    plate[24:40, 56:72] = 1
    draw(plate)
    async with cb.device(which) as device:
        u, spare = device.put(plate), device.empty(plate.shape)
        limit, go = device.put(np.float32(0.5)), device.put(np.bool_(True))
        with device.record(u=u, limit=limit, go=go) as recording:  # nothing runs yet
            with recording.while_(go, most=100_000) as turns:
                heat_step(u, 0.2, next=spare)
                heat_step(spare, 0.2, next=u)
                above(peak=hottest(u), limit=limit, out=go)
            cooling = recording.returns(u, turns)
        print(cooling.dot())

        for warmest in (0.5, 0.25, 0.1):
            cooled, took = cooling.replay(limit=np.float32(warmest), go=np.bool_(True))
            plate = await cooled.get()
            print(f"{2 * int(await took.get()):,} steps until nothing is warmer than {warmest}")
            assert warmest * 0.9 < plate.max() <= warmest
        draw(plate)
        replays = (await cooling.stats()).replays
    print(f"{replays} replays; heat left {plate.sum() / 256:.3f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
