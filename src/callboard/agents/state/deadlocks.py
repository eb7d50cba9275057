"""Who waits for whom, over all coordinators of a process."""

import weakref
from collections.abc import Hashable
from typing import Any, Protocol

__all__ = ["Waits", "find_cycle"]


class Waits(Protocol):
    """A coordinator, as the search for deadlocks sees it."""

    def waits_of(self, agent: Hashable) -> dict[int, set[Hashable]]:
        """The requests of an agent that wait, with the agents that each waits for."""
        ...


ALL: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The coordinators of this process in which somebody waits."""


def find_cycle(agent: Hashable) -> list[Hashable] | None:
    """Agents that wait for each other in a circle with this one; None if there are none."""
    before: dict[Hashable, Hashable] = {}
    ahead = [agent]
    while ahead:
        at = ahead.pop()
        for coordinator in list(ALL):
            for blockers in coordinator.waits_of(at).values():
                for each in blockers:
                    if each == agent:
                        path = [at]
                        while path[-1] != agent:
                            path.append(before[path[-1]])
                        return path[::-1]
                    if each not in before:
                        before[each] = at
                        ahead.append(each)
    return None
