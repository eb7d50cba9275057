"""Inputs and outputs of plans, and the shapes that a profile allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, shape_of

__all__ = ["Port", "Profile", "profiles_of"]

Extent = int | str | None


@dataclass(frozen=True)
class Port:
    """An input or output of a plan.

    Attributes:
        name: Its name in the model.
        dtype: Name of its dtype.
        shape: Extents: a number, or for dynamic ones a symbol or None; None if not even their number is declared.
    """

    name: str
    dtype: str
    shape: tuple[Extent, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype}[...]"
        return f"{self.name}: {self.dtype}[{', '.join('?' if n is None else str(n) for n in self.shape)}]"

    def check(self, title: str, layout: Layout, profile: "Profile | None", on_host: bool = False) -> None:
        """Check an array for an input.

        Args:
            title: Name of the model.
            layout: Of the array.
            profile: The shapes that are allowed; None: all that the model declares.
            on_host: It is an array of NumPy.

        Raises:
            ShapeError: Dtype, number of axes or an extent does not fit; names input, axis, value and range.
        """
        where = f"{title}: input {self.name!r}"
        if layout.dtype is not DTYPES[self.dtype]:
            cure = f'array.astype("{DTYPES[self.dtype].np.name}")' if on_host else "dev.array.cast"
            raise ShapeError(f"{where} is {layout!r}, expected {self}; convert it ({cure})")
        if self.shape is None:
            return
        if layout.ndim != len(self.shape):
            raise ShapeError(f"{where} is {layout!r} with {layout.ndim} axes, expected {self}")
        for axis, (extent, declared) in enumerate(zip(layout.shape, self.shape, strict=True)):
            if isinstance(declared, int) and extent != declared:
                raise ShapeError(f"{where} has the extent {extent} on axis {axis}, expected {declared}")
            if profile is not None and not profile.least[axis] <= extent <= profile.most[axis]:
                raise ShapeError(
                    f"{where} has the extent {extent} on axis {axis}; the profile allows {profile.least[axis]} to "
                    f"{profile.most[axis]}: build the plan with another profile"
                )


@dataclass(frozen=True)
class Profile:
    """The smallest, usual and largest shape of an input."""

    least: tuple[int, ...]
    usual: tuple[int, ...]
    most: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """All three."""
        return self.least, self.usual, self.most

    def __str__(self) -> str:
        return f", {list(self.least)} to {list(self.most)}, usually {list(self.usual)}"


def profiles_of(title: str, inputs: Sequence[Port], given: Mapping[str, Any] | None) -> dict[str, Profile]:
    """Profiles by input, checked.

    Args:
        title: Name of the model.
        inputs: The model's inputs.
        given: (smallest, usual, largest shape) by name; None: every shape is allowed.

    Raises:
        ShapeError: A profile does not fit its input, or contradicts itself; names input and axis.
        TypeError: It is not three shapes.
    """
    ports = {port.name: port for port in inputs}
    found = {}
    for name, shapes in (given or {}).items():
        where = f"{title}: profile of {name!r}"
        if name not in ports:
            raise ShapeError(f"{where}: there is no such input; the inputs are {', '.join(ports)}")
        if isinstance(shapes, str) or not isinstance(shapes, Sequence) or len(shapes) != 3:
            raise TypeError(f"{where} is {shapes!r}; pass (smallest, usual, largest) shapes")
        profile = Profile(*(shape_of(shape) for shape in shapes))
        shape = ports[name].shape
        if len({len(each) for each in profile.shapes}) > 1 or (shape is not None and len(profile.least) != len(shape)):
            raise ShapeError(f"{where} is {shapes!r}, expected three shapes like {ports[name]}")
        for axis, (least, usual, most) in enumerate(zip(*profile.shapes, strict=True)):
            if not least <= usual <= most:
                raise ShapeError(f"{where}: axis {axis} goes from {least} over {usual} to {most}; they must ascend")
            declared = None if shape is None else shape[axis]
            if isinstance(declared, int) and not least == most == declared:
                raise ShapeError(f"{where}: axis {axis} is always {declared}, not {least} to {most}")
        found[name] = profile
    return found
