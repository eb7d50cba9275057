"""``CpuNvrtc``: the NumPy bodies of kernels of the user's own."""

import itertools
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
VIEWS = 64
"""Arguments of a plan that are kept as arrays, which keep no memory: to make one takes a microsecond."""


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
    makers = [*map(_reader, layouts[0]), *map(viewer, layouts[1]), *map(viewer, layouts[2])]
    kinds = [DTYPES[kind].np.type for kind in spec.kinds if kind in DTYPES]
    counts = [*map(len, layouts), len(kinds)]
    ends = list(itertools.accumulate(counts, initial=0))
    places = in_order(spec, *(range(*ends[n : n + 2]) for n in range(4)))
    names = dict(zip(places, spec.names, strict=True))
    of_arrays = [(n, names[n], make) for n, make in enumerate(makers) if names[n]]
    of_numbers = [(n, names[n + len(makers)], kind) for n, kind in enumerate(kinds) if names[n + len(makers)]]
    nothing = 0 in spec.geometry.grid
    views: dict[tuple[int, ...], dict[str, Any]] = {}  # a recording is launched with the same addresses again

    def run(ins: Sequence[int], inouts: Sequence[int], outs: Sequence[int], numbers: Sequence[Any]) -> None:
        if nothing:
            return
        addresses = (*(ins or ()), *(inouts or ()), *(outs or ()))
        arrays = views.get(addresses)
        if arrays is None:
            if len(views) >= VIEWS:
                views.clear()
            arrays = views[addresses] = {name: make(addresses[n]) for n, name, make in of_arrays}
        answer = body(**arrays, **{name: kind(numbers[n]) for n, name, kind in of_numbers})
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
