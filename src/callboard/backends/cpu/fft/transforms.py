"""Transforms by SciPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.backend.machine import workers
from callboard.core.library import plans
from callboard.kernel.fft import Fft, FftPlanMany, FftPlanManyInPlace, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.fft.transform import Side, Transform

__all__ = ["Plan", "in_place", "out_of_place", "planned", "scipy_fft"]

Array = np.ndarray[Any, Any]
Plan = Callable[[int, int], None]
"""``plan(x, out)``, the addresses of element 0 of both."""

PARALLEL = 1 << 16
"""Elements below which SciPy's threads cost more than they save."""


@plans(Fft, FftPlanMany, Irfft, IrfftOverwrite, Rfft)
def out_of_place(op: Fft | FftPlanMany | Irfft | IrfftOverwrite | Rfft) -> Plan:
    """``plan(x, out)``."""
    return planned(op.transform())


@plans(FftPlanManyInPlace)
def in_place(op: FftPlanManyInPlace) -> Callable[[int], None]:
    """``plan(x)``."""
    plan = planned(op.transform())
    return lambda x: plan(x, x)


def planned(transform: Transform) -> Plan:
    """Return the plan that executes a transform."""
    if transform.src.size == 0 or transform.out.size == 0:
        return lambda x, out: None
    if transform.src.real.name == "f16":
        return _in_singles(transform)
    return {"C2C": _complex, "R2C": _from_real, "C2R": _to_real}[transform.kind](transform)


def _settings(transform: Transform) -> dict[str, Any]:
    elements = max(transform.src.size, transform.out.size)
    return {"axes": transform.axes, "norm": transform.norm, "workers": 1 if elements < PARALLEL else workers()}


def scipy_fft() -> Any:
    """SciPy's module; its types are those of its dispatcher."""
    import scipy.fft

    return scipy.fft


def _complex(transform: Transform) -> Plan:
    run, settings = getattr(scipy_fft(), "fftn" if transform.direction == "forward" else "ifftn"), _settings(transform)
    view_x, view_out = viewer(transform.src.layout), viewer(transform.out.layout)
    same = transform.src == transform.out

    def work(x: int, out: int) -> None:
        target = view_out(out)
        if not (same and x == out):
            target[...] = view_x(x)
        # In the output, which spares SciPy an array of its own.
        result = run(target, overwrite_x=True, **settings)
        if result is not target:
            target[...] = result

    return work


def _from_real(transform: Transform) -> Plan:
    rfftn, settings = scipy_fft().rfftn, _settings(transform)
    view_x, view_out = viewer(transform.src.layout), viewer(transform.out.layout)

    def work(x: int, out: int) -> None:
        view_out(out)[...] = rfftn(view_x(x), **settings)

    return work


def _to_real(transform: Transform) -> Plan:
    irfftn, settings, lengths = scipy_fft().irfftn, _settings(transform), transform.lengths
    view_x, view_out = viewer(transform.src.layout), viewer(transform.out.layout)

    def work(x: int, out: int) -> None:
        view_out(out)[...] = irfftn(view_x(x), s=lengths, **settings)

    return work


def _in_singles(transform: Transform) -> Plan:
    """Halves: converted, transformed in f32, rounded once."""
    settings = _settings(transform)
    if transform.kind == "C2R":
        settings["s"] = transform.lengths
    names = {"R2C": "rfftn", "C2R": "irfftn", "C2C": "fftn" if transform.direction == "forward" else "ifftn"}
    run: Callable[..., Array] = getattr(scipy_fft(), names[transform.kind])
    read, write = _reader(transform.src), _writer(transform.out)

    def work(x: int, out: int) -> None:
        write(out, run(read(x), **settings))

    return work


def _reader(side: Side) -> Callable[[int], Array]:
    view = viewer(side.layout)
    if not side.is_complex:
        return lambda address: view(address).astype(np.float32)

    def read(address: int) -> Array:
        singles = np.ascontiguousarray(view(address), np.float32)
        return singles.view(np.complex64)[..., 0]

    return read


def _writer(side: Side) -> Callable[[int, Array], None]:
    view = viewer(side.layout)

    def write(address: int, result: Array) -> None:
        target = view(address)
        if side.is_complex:
            target[..., 0], target[..., 1] = result.real, result.imag
        else:
            target[...] = result

    return write
