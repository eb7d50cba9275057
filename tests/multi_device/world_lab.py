"""Collectives of worlds, called and checked by name."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.conformance import collective_lab as lab

import callboard as cb

Array = np.ndarray[Any, Any]
BOUND = 60.0


def put(world: cb.World, xs: Sequence[Array]) -> list[cb.GpuRef]:
    """An array for each rank."""
    return [device.put(x) for device, x in zip(world.devices, xs, strict=True)]


def begin(
    world: cb.World, kind: str, dtype: str, op: str = "sum", in_place: bool = False, rows: int = 3
) -> tuple["cb.Collective[Any]", list[Array | None]]:
    """Call a collective; the reply, and what each rank must have got, None for a rank that gets nothing."""
    n, devices = world.size, world.devices
    root = n - 1
    cases = lab.cases(kind, n, dtype, op=op, in_place=in_place, rows=rows)
    want = [case.want for case in cases]
    if kind == "barrier":
        return world.barrier(), want
    both = [None if c.both is None else devices[r].put(c.both) for r, c in enumerate(cases)]
    xs: list[Any] = [None if c.source is None else devices[r].put(c.source) for r, c in enumerate(cases)]
    mine = [slice(r * rows, (r + 1) * rows) for r in range(n)]
    outs: list[Any] = list(both)
    if kind in ("all_gather", "gather"):
        xs = [x if b is None else b[mine[r]] for r, (x, b) in enumerate(zip(xs, both, strict=True))]
    elif kind in ("reduce_scatter", "scatter"):
        xs = [x if b is None else b for x, b in zip(xs, both, strict=True)]
        outs = [None if b is None else b[mine[r]] for r, b in enumerate(both)]
        want = [w[mine[r]] if both[r] is not None and w is not None else w for r, w in enumerate(want)]
    else:
        xs = [x if b is None else b for x, b in zip(xs, both, strict=True)]
    if in_place and kind in ("broadcast", "scatter"):  # the other ranks' arrays are only received in
        targets = [c.target for c in cases]
        outs = [devices[r].empty(targets[r] or (), dtype) if o is None else o for r, o in enumerate(outs)]
    out = {"out": outs[root] if kind in ("reduce", "gather") else outs} if in_place else {}
    if kind in ("all_reduce", "reduce_scatter"):
        return getattr(world, kind)(xs, op, **out), want
    if kind == "reduce":
        return world.reduce(xs, op, root=root, **out), want  # type: ignore[arg-type]
    if kind == "gather":
        return world.gather(xs, root=root, **out), want  # type: ignore[arg-type]
    if kind in ("broadcast", "scatter"):
        return getattr(world, kind)(xs[root], **out), want
    if kind == "all_to_all_v":
        return world.all_to_all_v(xs, [[(i + j) % 3 for j in range(n)] for i in range(n)]), want
    if kind == "send":
        return world.send(xs[n - 1], to=0), want
    return getattr(world, kind)(xs, **out), want


async def right(reply: "cb.Collective[Any]", want: Sequence[Array | None], kind: str, op: str = "sum") -> None:
    """Wait for it, and compare what each rank got."""
    async with asyncio.timeout(BOUND):
        await reply
        expected = [w for w in want if w is not None]
        assert len(reply.refs) == len(expected)
        got = await asyncio.gather(*(ref.get() for ref in reply.refs))
    for one, w in zip(got, expected, strict=True):
        lab.close(one, w, lab.Step(kind, op), len(want))  # type: ignore[arg-type]
