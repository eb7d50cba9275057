"""``Plans``: the plans of a context, which are dropped when a library has too many."""

from collections.abc import Iterable
from operator import itemgetter

from callboard.device.host.context.plans.plan import Plan

__all__ = ["GRAPH", "Plans"]

MAX_PLANS = 8192
"""Plans kept per library that sets no limit; beyond that, the least recently used ones, half this many, are dropped."""
GRAPH = "graph"
"""The library of the plans of recordings."""


class Kept:
    """The plans of one library.

    Attributes:
        plans: By signature.
        misses, evictions: Number of plans made, and of plans dropped for new ones.
        hits: Launches of dropped plans, without the first of each.
    """

    __slots__ = ("evictions", "hits", "misses", "plans")

    def __init__(self) -> None:
        self.plans: dict[bytes, Plan] = {}
        self.misses = self.evictions = self.hits = 0


class Plans:
    """The plans of a context. When a library has too many, its least recently used ones are dropped.

    A plan's state is closed when its last launch is done. Plans that are being prepared, and pinned ones, are not
    dropped.

    Attributes:
        by_signature: All plans, by signature; looked up for every call.
    """

    def __init__(self) -> None:
        self.by_signature: dict[bytes, Plan] = {}
        self._libraries: dict[str, Kept] = {}
        self._leaving: list[Plan] = []

    def add(self, signature: bytes, plan: Plan) -> None:
        """Keep a new plan, bound to its library."""
        assert plan.library is not None
        kept = self._libraries.setdefault(plan.library.lib, Kept())
        limit = plan.library.max_plans
        if len(kept.plans) >= (MAX_PLANS if limit is None else limit):
            unused = [(p.used, h) for h, p in kept.plans.items() if p.ready and not p.pins]
            unused.sort(key=itemgetter(0))  # ties, of plans that were only replayed: oldest first
            many = MAX_PLANS // 2 if limit is None else len(kept.plans) - limit + 1
            for _, old in unused[:many]:
                self._drop(kept, old)
                kept.evictions += 1
        kept.misses += 1
        self.by_signature[signature] = kept.plans[signature] = plan

    def refused(self, signature: bytes, lib: str) -> None:
        """Remove the plan of a signature that could not be prepared; its calls have been refused."""
        self.by_signature.pop(signature, None)
        self._libraries[lib].plans.pop(signature, None)

    def release(self, plan: Plan) -> None:
        """Close a plan that was made for a library handle which has been given up meanwhile."""
        self._leaving.append(plan)

    def recording(self, recording: int) -> Plan | None:
        """The plan of a recording, by its id."""
        kept = self._libraries.get(GRAPH)
        plans = () if kept is None else kept.plans.values()
        return next((plan for plan in plans if plan.recording == recording), None)

    def release_recording(self, recording: int) -> None:
        """The application has given a recording up, or it was refused: drop its plan."""
        kept = self._libraries.get(GRAPH)
        if kept is not None:
            for signature in [s for s, plan in kept.plans.items() if plan.recording == recording]:
                self._drop(kept, signature)

    def recordings_of(self, lib: str) -> list[tuple[bytes, Plan]]:
        """The plans of recordings with ops of a library, by signature."""
        kept = self._libraries.get(GRAPH)
        return [] if kept is None else [(s, plan) for s, plan in kept.plans.items() if lib in plan.state.libs]

    def forget(self, lib: str) -> None:
        """Drop all plans of a library, and of recordings with ops of it: they are recorded again when they are used."""
        for signature, _ in self.recordings_of(lib):
            self._drop(self._libraries[GRAPH], signature)
        kept = self._libraries.get(lib)
        if kept is not None:
            for signature in list(kept.plans):
                self._drop(kept, signature)

    def sweep(self) -> bool:
        """Close dropped plans whose last launch is done; True while some are left.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            for plan in leaving:
                if plan.passed:
                    plan.close()
                else:
                    self._leaving.append(plan)
        return bool(self._leaving)

    def close(self) -> None:
        """Close all plans; no work is in flight."""
        for lib in self._libraries:
            self.forget(lib)
        for plan in self._leaving:
            plan.close()
        self._leaving.clear()

    def stats(self) -> dict[str, dict[str, int]]:
        """Counters of each library's plans."""
        return {
            lib: {
                "entries": len(kept.plans),
                "hits": kept.hits + _hits(kept.plans.values()),
                "misses": kept.misses,
                "evictions": kept.evictions,
            }
            for lib, kept in self._libraries.items()
        }

    def _drop(self, kept: Kept, signature: bytes) -> None:
        plan = kept.plans.pop(signature)
        del self.by_signature[signature]
        kept.hits += _hits([plan])
        if plan.ready:
            self._leaving.append(plan)
        elif plan.recording:
            plan.close()


def _hits(plans: Iterable[Plan]) -> int:
    return sum(plan.launched - 1 for plan in plans if plan.launched)
