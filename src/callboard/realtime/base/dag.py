"""``ordered``: names in an order in which each comes after what it takes."""

from collections.abc import Collection, Mapping

__all__ = ["ordered"]


def ordered(kind: str, inputs: Mapping[str, Collection[str]], given: Collection[str]) -> tuple[str, ...]:
    """Names in an order in which each comes after its inputs; otherwise in the order of the mapping.

    Args:
        kind: What a name stands for, for errors.
        inputs: Of each name.
        given: Names that need no inputs.

    Raises:
        ValueError: A name is among the given ones, an input is unknown, or names take each other in a circle.
    """
    for name, taken in inputs.items():
        if name in given:
            raise ValueError(f"{kind} {name!r} has the name of an input; give it another one")
        unknown = [one for one in taken if one not in inputs and one not in given]
        if unknown:
            known = ", ".join(map(repr, (*given, *inputs)))
            raise ValueError(f"{kind} {name!r} takes {unknown[0]!r}, which does not exist; there are {known}")
    done: dict[str, None] = {}
    for first in inputs:
        path = [first]
        while path:
            missing = [one for one in inputs[path[-1]] if one in inputs and one not in done]
            if not missing:
                done[path.pop()] = None
            elif missing[0] in path:
                circle = [*path[path.index(missing[0]) :], missing[0]]
                plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
                raise ValueError(f"{plural} take each other in a circle: {' <- '.join(map(repr, circle))}; break it")
            else:
                path.append(missing[0])
    return tuple(done)
