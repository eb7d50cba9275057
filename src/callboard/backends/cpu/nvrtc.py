"""``CpuNvrtc``: the NumPy bodies of kernels of the user's own."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.op import outputs_of
from callboard.kernel.nvrtc import Compile, Inspect, Launch
from callboard.kernel.nvrtc.bodies import unpacked
from callboard.kernel.nvrtc.launch import in_order

__all__ = ["CpuNvrtc"]

Plan = Callable[..., None]


def without_body(op: Launch) -> str | None:
    """The reason why a CPU cannot launch it."""
    return None if op.body else f"{op.spec.name} has no NumPy body; give it one with @cb.kernel"


def launch(op: Launch) -> Plan:
    """The call of the body with arrays, and numbers of the declared dtypes, by name."""
    try:
        body = unpacked(op.body)
    except Exception as e:  # of importing whatever the function refers to
        raise LibraryError(f"{op.spec.name} cannot be loaded: {type(e).__name__}: {e}", "nvrtc") from e
    spec = op.spec
    outs = outputs_of(op).values() if op.outs is None else [out.layout for out in op.outs]
    layouts = ([o.layout for o in op.ins], [o.layout for o in op.inouts], list(outs))
    numbers = [kind for kind in spec.kinds if kind in DTYPES]
    makers: list[Callable[[Any], Any]] = in_order(
        spec,
        list(map(_reader, layouts[0])),
        list(map(viewer, layouts[1])),
        list(map(viewer, layouts[2])),
        [DTYPES[n].np.type for n in numbers],
    )
    nothing = 0 in spec.geometry.grid

    def run(ins: Sequence[int], inouts: Sequence[int], outs: Sequence[int], numbers: Sequence[Any]) -> None:
        if nothing:
            return
        given = in_order(spec, ins or (), inouts or (), outs or (), numbers or ())
        values = {n: make(v) for n, make, v in zip(spec.names, makers, given, strict=True) if n}
        answer = body(**values)
        if answer is not None:
            raise TypeError(f"the body returned {type(answer).__name__}; write into the outputs")

    run.__name__ = spec.name
    return run


def _reader(layout: Layout) -> Callable[[Any], Any]:
    view = viewer(layout)

    def read(address: int) -> Any:
        array = view(address)
        array.flags.writeable = False  # it is declared as one that is read
        return array

    return read


class CpuNvrtc(CpuLibrary):
    """Serves the launches of :mod:`callboard.kernel.nvrtc` that have a NumPy body."""

    name = "nvrtc"
    implementation = "nvrtc"
    brief = False
    max_plans: ClassVar[int | None] = 1024
    refused: ClassVar = dict.fromkeys(
        (Compile, Inspect), "a CPU has no compiler for CUDA C++; @cb.kernel has a NumPy body"
    )

    @plans(Launch, inline=False, refuses=without_body)
    def call(self, op: Launch) -> Plan:
        return launch(op)
