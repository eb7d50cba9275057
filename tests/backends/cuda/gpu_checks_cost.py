"""Cost of a launch, an event and a plan on a GPU machine."""

from typing import Any

import numpy as np
from gpu_checks import check, per_call, values

from callboard.kernel import blas
from callboard.testing.session import LibrarySession


@check
def cost_of_a_launch(s: LibrarySession) -> str:
    from nvmath.bindings import cublas

    x, y, out = (s.put(values((64, 64), "f32")) for _ in range(3))
    library: Any = s._library("blas")
    stream: Any = s._streams["blas"]
    plan = library.plan_gemm(blas.Gemm(a=x, b=y, out=out))
    pa, pb, pc = x.address, y.address, out.address
    one, zero = np.ones(1, "f4"), np.zeros(1, "f4")
    p1, p0, handle = one.ctypes.data, zero.ctypes.data, library.cublas.handle
    library.cublas.point(0)
    raw, bound = cublas.sgemm, library.gemm
    report = []
    for _ in range(2):
        report = [
            "raw nvmath "
            + per_call(lambda: raw(handle, 0, 0, 64, 64, 64, p1, pb, 64, pa, 64, p0, pc, 64), stream.synchronize, 4000),
            "launch " + per_call(lambda: bound(stream, plan, pa, pb, pc, None, 1.0, 0.0), stream.synchronize, 4000),
        ]
    return ", ".join(report)


@check
def cost_of_events(s: LibrarySession) -> str:
    stream: Any = s._streams["memory"]
    event = stream.record()
    query = per_call(event.query, stream.synchronize)

    def record() -> None:
        stream.recycle(stream.record())

    def both() -> None:
        e = stream.record()
        while not e.query():
            pass
        stream.recycle(e)

    each = {name: per_call(f, stream.synchronize) for name, f in (("record", record), ("record + poll", both))}
    return f"query {query}, " + ", ".join(f"{name} {cost}" for name, cost in each.items())


@check
def cost_of_a_product_until_it_is_seen(s: LibrarySession) -> str:
    x, y, out = (s.put(values((64, 64), "f32")) for _ in range(3))
    library: Any = s._library("blas")
    stream: Any = s._streams["blas"]
    plan = library.plan_gemm(blas.Gemm(a=x, b=y, out=out))

    def ask() -> None:
        library.gemm(stream, plan, x.address, y.address, out.address, None, 1.0, 0.0)
        e = stream.record()
        while not e.query():
            pass
        stream.recycle(e)

    return per_call(ask, lambda: None)


@check
def cost_of_a_plan(s: LibrarySession) -> str:
    x, y, out = (s.put(values((64, 64), "f32")) for _ in range(3))
    library: Any = s._library("blas")
    op = blas.Gemm(a=x, b=y, out=out)
    return per_call(lambda: library.plan_gemm(op), lambda: None, 500)
