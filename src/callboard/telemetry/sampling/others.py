"""``Others``: what metrics show of the actors of a system that has many: a page with a row for each would not end."""

from callboard.telemetry.sampling.snapshot import ActorFigures

__all__ = ["MOST", "Others"]

MOST = 1000
"""Actors of a system with rows of their own."""

Counted = tuple[int, int, int, float]


class Others:
    """Chooses the actors with rows of their own, and sums the others; one object for each system.

    The first actors that are seen have their own rows until they end. The counters of the row of the others never fall,
    though actors end: each adds to them what it has counted since it was last seen.

    Args:
        label: Name of the system.
    """

    def __init__(self, label: str) -> None:
        self._path = f"/{label}/(others)"  # which no actor can be called
        self._own: set[str] = set()
        self._seen: dict[str, Counted] = {}
        self._sums: Counted = 0, 0, 0, 0.0

    def rows(self, actors: list[ActorFigures]) -> list[ActorFigures]:
        """The actors that have rows of their own, and a last row for all others if there were any."""
        if len(actors) <= MOST and not self._seen:
            return actors
        self._own &= {actor.path for actor in actors}
        own, rest = [], []
        for actor in actors:
            if actor.path not in self._own:
                if actor.path in self._seen or len(self._own) >= MOST:
                    rest.append(actor)
                    continue
                self._own.add(actor.path)
            own.append(actor)
        return [*own, self._row(rest)]

    def _row(self, rest: list[ActorFigures]) -> ActorFigures:
        restarts, handled, failed, busy = self._sums
        seen: dict[str, Counted] = {}
        for actor in rest:
            now = seen[actor.path] = actor.restarts, actor.handled, actor.failed, actor.busy
            before = self._seen.get(actor.path, (0, 0, 0, 0.0))
            if now[1] < before[1]:  # another actor of this name
                before = 0, 0, 0, 0.0
            restarts += max(0, now[0] - before[0])
            handled += now[1] - before[1]
            failed += max(0, now[2] - before[2])
            busy += max(0.0, now[3] - before[3])
        self._seen = seen
        self._sums = restarts, handled, failed, busy
        depth, wait = sum(actor.depth for actor in rest), max((actor.wait for actor in rest), default=0.0)
        return ActorFigures(self._path, "", "running", depth, restarts, handled, failed, busy, wait)
