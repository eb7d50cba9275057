"""``Force``: a force as an expression, checked when it is written down, and computed as one kernel on each backend."""

import functools
import keyword
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from callboard.core.dtype import as_dtype
from callboard.kernel.elementwise.calls import ElementwiseMany, elementwise
from callboard.kernel.elementwise.language import CONSTANTS, read
from callboard.kernel.elementwise.program import compiled
from callboard.kernel.elementwise.promotion import Weak
from callboard.realtime.base.checks import number
from callboard.realtime.base.fields import Part

__all__ = ["Force", "check_force", "check_numbers", "kicking"]

STATE = "x", "y", "z", "vx", "vy", "vz", "t", "life", "mass"
"""What every force may read."""
RESULTS = {"fx": "vx", "fy": "vy", "fz": "vz"}
NUMBERS = "late_", "part_"
RESERVED = frozenset({"out", "outs"})
"""What the results of an expression are called."""
FLOAT: Weak = "float"


class Force(Part, frozen=True, kw_only=False):
    """A force as an expression, for each particle: ``cb.Force("fx = -k * x; fy = wind * sin(w * t)")``.

    The text is in the language of :func:`callboard.elementwise`, and assigns ``fx``, ``fy`` or ``fz``, in newtons; what
    it does not assign is 0. It may read a particle's position ``x``, ``y``, ``z``, its velocity ``vx``, ``vy``, ``vz``,
    its ``mass`` and the seconds that it has to live, ``life``; ``t``, the seconds since the start, as f32; and numbers
    by their names: the configuration's ``attributes`` (one for each particle) and ``parameters`` (one for all, which
    ``update_config`` changes without another recording or compilation).

    Attributes:
        text: Assignments, separated by ``;`` or line ends.

    Raises:
        ShapeError, TypeError: The text is not of the language, or assigns no force.
        ValueError: It reads what there is not, or assigns an attribute or parameter (raised by the configuration); it
            assigns what every force may read, or a name with a ``_`` at its end, which are those of the step.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Force.text is {self.text!r:.80}; pass an expression, as 'fx = -k * x'")
        targets = {target for target, _ in read(self.text).statements}
        taken = sorted(targets.intersection(STATE))
        if taken:
            raise ValueError(f"Force {self.text!r:.80} assigns {taken[0]}; use another name, and assign fx, fy or fz")
        inner = sorted(target for target in targets if target.endswith("_"))
        if inner:
            raise ValueError(f"Force {self.text!r:.80} assigns {inner[0]}; use a name without a _ at its end")
        if not targets.intersection(RESULTS):
            raise ValueError(f"Force {self.text!r:.80} assigns {', '.join(sorted(targets))}; assign fx, fy or fz")

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it reads."""
        return read(self.text).inputs


def check_numbers(name: str, numbers: Any, others: Iterable[str] = ()) -> None:
    """Refuse names and values that no force can read.

    Args:
        others: Names that are taken.

    Raises:
        TypeError, ValueError: Names the one that is wrong.
    """
    if not isinstance(numbers, Mapping):
        raise TypeError(f"{name} is {numbers!r:.80}; pass numbers by their names, as {{'k': 4.0}}")
    for key, value in numbers.items():
        if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key) or key.endswith("_"):
            raise ValueError(f"{name} has the name {key!r:.40}; use one as of a variable, without a _ at its end")
        plain = unicodedata.normalize("NFKC", key)  # as Python reads names
        if plain != key:
            raise ValueError(f"{name} has the name {key!a:.40}, which expressions read as {plain!a:.40}; write that")
        if key in {*STATE, *RESULTS, *CONSTANTS, *RESERVED, *others}:
            raise ValueError(f"{name} has the name {key!r}, which has a meaning; use another one")
        number(f"{name}[{key!r}]", value)


def check_force(force: Force, attributes: Iterable[str], parameters: Iterable[str]) -> None:
    """Refuse a force that reads what there is not, assigns a number of all, or whose result is no real number.

    Raises:
        ValueError, ShapeError: Names the force, and what it may read.
    """
    known = {*STATE, *attributes, *parameters}
    unknown = [name for name in force.inputs if name not in known]
    if unknown:
        raise ValueError(
            f"Force {force.text!r:.80} reads {unknown[0]!r}, which is neither of {', '.join(STATE)} nor among the "
            f"attributes or parameters; write parameters={{{unknown[0]!r}: 1.0}} in the configuration"
        )
    given = {*attributes, *parameters}
    hidden = sorted(given.intersection(target for target, _ in read(force.text).statements))
    if hidden:
        raise ValueError(f"Force {force.text!r:.80} assigns {hidden[0]}, an attribute or parameter; use another name")
    whole = kicking(force.text)
    numbers = tuple((name, FLOAT) for name in whole.inputs if name in NUMBERS)
    dtypes = tuple(as_dtype("f64" if name == "clock_" else "f32") for name in whole.inputs if name not in NUMBERS)
    compiled(whole.text, dtypes, numbers, whole.results)


@functools.lru_cache(maxsize=256)
def kicking(text: str) -> ElementwiseMany:
    """A kernel that adds what a force does in a part of a step to velocities, in place.

    Its inputs are those of the force, and velocities, ``mass``, ``dt_`` (f32 [1]), ``clock_`` (f64 [1], seconds at the
    start of the step), and the numbers ``part_`` and ``late_``: how much of a step, and how long after its start.
    """
    expression = read(text)
    targets = {target for target, _ in expression.statements}
    lines = ["t = f32(clock_ + f64(dt_) * late_)"] * ("t" in expression.inputs) + [text]
    kicked = [(force, v) for force, v in RESULTS.items() if force in targets]
    lines += [f"{v} = {v} + f32({force}) * (dt_ * part_) / mass" for force, v in kicked]
    return elementwise("\n".join(lines), results=[v for _, v in kicked])
