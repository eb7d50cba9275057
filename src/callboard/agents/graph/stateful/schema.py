"""The keys of a state: their reducers, from the annotations of a TypedDict, a dataclass or a pydantic model."""

import collections.abc
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints

from callboard.agents.graph.errors import GraphError, InvalidUpdate
from callboard.agents.graph.stateful.types import Overwrite

__all__ = ["Channel", "Schema", "apply_writes", "fields_of"]

MISSING: Any = object()
CONCRETE = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Channel:
    """A key of the state.

    Attributes:
        name: Its name.
        reducer: Combines the value with one of an update; None: an update replaces the value.
        start: Makes the value that it has before the first update; None for no value.
    """

    name: str
    reducer: Callable[[Any, Any], Any] | None
    start: Callable[[], Any] | None


class Schema:
    """The keys that a class describes.

    Raises:
        GraphError: It describes none, or a reducer does not take two arguments.
    """

    def __init__(self, cls: Any) -> None:
        try:
            hints = get_type_hints(cls, include_extras=True)
        except Exception as e:  # of any class: names that cannot be resolved, no annotations
            raise GraphError(f"schema {cls!r:.200} has no annotations that can be read: {e}") from e
        if not hints:
            raise GraphError(f"schema {cls!r:.200} has no keys; use a TypedDict, a dataclass or a pydantic model")
        self.cls = cls
        self.channels = {name: _channel(name, hint) for name, hint in hints.items()}
        self.keys = tuple(self.channels)
        self._make: Any = cls if dataclasses.is_dataclass(cls) or hasattr(cls, "model_fields") else None

    def read(self, values: Mapping[str, Any]) -> Any:
        """The state as a node gets it: a new dict, or an object of the class."""
        found = {key: values[key] for key in self.keys if key in values}
        return found if self._make is None else self._make(**found)


def _channel(name: str, hint: Any) -> Channel:
    while get_origin(hint) in (Required, NotRequired):
        (hint,) = get_args(hint)
    if get_origin(hint) is not Annotated:
        return Channel(name, None, None)
    of, *extras = get_args(hint)
    reducer = extras[-1]
    if not callable(reducer) or isinstance(reducer, type):
        return Channel(name, None, None)
    try:
        count = sum(
            p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            for p in inspect.signature(reducer).parameters.values()
        )
    except (TypeError, ValueError):  # of C functions
        count = 2
    if count != 2:
        raise GraphError(f"the reducer of {name!r} takes {count} arguments; it must take two: (left, right)")
    while get_origin(of) in (Required, NotRequired):
        (of,) = get_args(of)
    cls = get_origin(of) or of
    cls = CONCRETE.get(cls, cls)
    try:
        cls()
    except Exception:  # of any class: it has no value to begin with
        return Channel(name, reducer, None)
    return Channel(name, reducer, cls)


def apply_writes(
    channels: Mapping[str, Channel], values: dict[str, Any], writes: Iterable[tuple[str, str, Any]]
) -> dict[str, Any]:
    """Apply the writes of one step to ``values``; returns the new values of the keys that were written.

    Args:
        channels: The keys.
        values: The state; it is changed.
        writes: Node, key and value, in order.

    Raises:
        InvalidUpdate: Two nodes wrote to a key without a reducer.
    """
    writers: dict[str, str] = {}
    changed: dict[str, Any] = {}
    for node, key, value in writes:
        channel = channels[key]
        if channel.reducer is None:
            if key in writers:
                raise InvalidUpdate(
                    f"nodes {writers[key]!r} and {node!r} both wrote {key!r} in one step, which takes one value; "
                    "give it a reducer: Annotated[list, operator.add], for example"
                )
            writers[key] = node
            changed[key] = value.value if isinstance(value, Overwrite) else value
        elif key in writers and writers[key].startswith("\0"):
            if isinstance(value, Overwrite):
                raise InvalidUpdate(f"nodes {writers[key][1:]!r} and {node!r} both overwrote {key!r} in one step")
        elif isinstance(value, Overwrite):
            writers[key] = "\0" + node
            changed[key] = value.value
        else:
            before = changed.get(key, values.get(key, MISSING))
            changed[key] = value if before is MISSING else channel.reducer(before, value)
    values.update(changed)
    return changed


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or a pydantic model as an update: those that were set; None for another object."""
    if isinstance(getattr(type(value), "model_fields", None), dict):
        return {name: getattr(value, name) for name in value.model_fields_set}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: item for name, item in found.items() if item is not None}
    return None
