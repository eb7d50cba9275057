"""Forces that a step adds beside those of its own kernel: between particles, of expressions, and of functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from callboard.core.errors import ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.elementwise.calls import elementwise
from callboard.realtime.base.rule import Arrays
from callboard.realtime.cloth.kernels import begins, buckets
from callboard.realtime.particles.config import Contact, ParticleConfig
from callboard.realtime.particles.expressions import Force, kicking
from callboard.realtime.particles.kernels import contacts, kick

__all__ = ["ForceFunction", "ParticleArrays", "between", "checked_functions", "kicked_by", "kicked_by_function"]


class ParticleArrays(NamedTuple):
    """What a function of forces gets: refs, which it reads and does not write.

    Attributes:
        device: Where they are.
        x, v: Positions and velocities, f32 ``[3, slots]``.
        life: Seconds that each has to live, f32 ``[slots]``; 0 or less in a free slot.
        mass: f32 ``[slots]``.
        time: Seconds since the start, f32 ``[1]``.
        attributes: Of the configuration, f32 ``[slots]`` each, by name.
        parameters: Of the configuration, f32 ``[1]`` each, by name. They change without another recording.
    """

    device: Device
    x: GpuRef
    v: GpuRef
    life: GpuRef
    mass: GpuRef
    time: GpuRef
    attributes: Mapping[str, GpuRef]
    parameters: Mapping[str, GpuRef]


ForceFunction = Callable[[ParticleArrays], Any]
"""A function that enqueues ops, and returns the ref of forces, f32 ``[3, slots]``."""

_time = elementwise("f32(clock + f64(dt) * late)")


def checked_functions(forces: Any) -> tuple[ForceFunction, ...]:
    """Functions that can be called with the arrays of particles.

    Raises:
        TypeError: One is no function, or takes other arguments.
    """
    if isinstance(forces, str | Force) or not isinstance(forces, Sequence):
        raise TypeError(f"forces is {forces!r:.80}; pass a sequence of functions of a ParticleArrays")
    for n, one in enumerate(forces):
        if isinstance(one, Force):
            raise TypeError(f"forces[{n}] is {one!r:.80}; expressions go into ParticleConfig(fields=...)")
        if not callable(one):
            raise TypeError(f"forces[{n}] is {one!r:.80}; pass a function of a ParticleArrays")
        if inspect.iscoroutinefunction(one):
            raise TypeError(f"forces[{n}] is a coroutine function; pass a plain one, which returns a ref without await")
        try:
            signature = inspect.signature(one)
        except (TypeError, ValueError):  # not every callable of C has one
            continue
        try:
            signature.bind(None)
        except TypeError:
            raise TypeError(
                f"forces[{n}] takes {signature}; it is called with one argument, a ParticleArrays (.x, .v, .mass)"
            ) from None
    return tuple(forces)


def between(device: Device, arrays: Arrays, contact: Contact) -> Any:
    """Forces by contacts: particles are sorted by the cells of a grid, as wide as a particle."""
    a: Any = arrays
    x, size = a["x"], a["starts"].shape[0] - 1
    keys, order = device.cub.sort_pairs(buckets(x, contact.diameter, size), a["index"])
    begins(keys, a["starts"])
    return contacts(
        x, a["v"], a["life"], order, a["starts"], contact.diameter, contact.stiffness, contact.damping
    )  # fmt: skip


def kicked_by(force: Force, arrays: Arrays, config: ParticleConfig, part: float, late: float) -> None:
    """Velocities after a part of a step under an expression.

    Args:
        late: Steps between what the clock says and the time at which the force is.
    """
    a: Any = arrays
    x, v = a["x"], a["v"]
    named: dict[str, Any] = {"x": x[0], "y": x[1], "z": x[2], "vx": v[0], "vy": v[1], "vz": v[2]}
    named |= {"mass": a["mass"], "life": a["life"], "dt_": a["dt"], "clock_": a["clock"][:1]}
    named |= {"part_": part, "late_": late, **_rows("attributes", a, config), **_rows("parameters", a, config)}
    kernel = kicking(force.text)
    kernel(*(named[name] for name in kernel.inputs), outs=[named[name] for name in kernel.results])


def kicked_by_function(
    force: ForceFunction, name: str, device: Device, arrays: Arrays, config: ParticleConfig, part: float, late: float
) -> None:
    """Velocities after a part of a step under a function; arguments as of :func:`kicked_by`.

    Raises:
        TypeError, ShapeError: What it returned are no forces.
    """
    a: Any = arrays
    time = _time(a["clock"][:1], a["dt"], late)
    others = _rows("attributes", a, config), _rows("parameters", a, config)
    found = force(ParticleArrays(device, a["x"], a["v"], a["life"], a["mass"], time, *others))
    if not isinstance(found, GpuRef):
        raise TypeError(f"{name} returned {found!r:.80}; return a ref, without await")
    if found.shape != a["x"].shape or found.dtype.name != "f32":
        raise ShapeError(f"{name} returned {found.layout}; return forces {a['x'].layout} (f32(...) in an expression)")
    kick(a["v"], found, a["mass"], a["dt"], part)


class _Named(dict[str, Any]):
    """Arrays by name; one that is missing is named with what to write."""

    def __init__(self, kind: str, arrays: dict[str, Any]) -> None:
        super().__init__(arrays)
        self._kind = kind

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"the configuration has no {name!r}; write ParticleConfig({self._kind}={{{name!r}: 1.0}})")


def _rows(kind: str, arrays: Any, config: ParticleConfig) -> _Named:
    """Attributes as rows, parameters as arrays of one number, by their names."""
    names, whole = getattr(config, kind), arrays[kind]
    return _Named(kind, {one: whole[n] if kind == "attributes" else whole[n : n + 1] for n, one in enumerate(names)})
