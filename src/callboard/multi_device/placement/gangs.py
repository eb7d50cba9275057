"""Devices for several pieces of work at once, each of its own, as well linked as can be found. Pure."""

from collections.abc import Mapping, Sequence

from callboard.multi_device.placement.hints import Candidate

__all__ = ["best_set"]


def best_set(
    able: Sequence[Sequence[Candidate]], links: Mapping[str, frozenset[str]], linked: bool
) -> list[Candidate] | None:
    """A different device for each need; None if there is no such set.

    From each device as a start, a set is grown by the device that has most links into it, among equals the one with
    fewest links out of it (so that whole islands stay together for the next gang), among equals the first. The best of
    these sets is taken. Where none is complete, because needs compete for the same devices, links are left out and the
    assignment problem is solved by augmenting paths (Kuhn 1955).

    Args:
        able: For each need, the devices that can take it.
        links: For each id, the ids of the devices it is linked to.
        linked: Accept only sets in which all devices are linked to each other.
    """
    order = sorted(range(len(able)), key=lambda need: len(able[need]))  # those that can choose least choose first
    best: list[Candidate] | None = None
    best_score = (-1, 0)
    for start in able[order[0]] if order else ():
        grown = _grow(start, [able[need] for need in order], links, linked)
        if grown is not None:
            inside = sum(len(links.get(c.id, frozenset()) & {o.id for o in grown}) for c in grown)
            outside = sum(len(links.get(c.id, frozenset())) for c in grown) - inside
            if (inside, -outside) > best_score:
                best, best_score = grown, (inside, -outside)
    if best is None:
        return None if linked else _matched(able)
    chosen: dict[int, Candidate] = dict(zip(order, best, strict=True))
    return [chosen[need] for need in range(len(able))]


def _grow(
    start: Candidate, able: Sequence[Sequence[Candidate]], links: Mapping[str, frozenset[str]], linked: bool
) -> list[Candidate] | None:
    grown, ids = [start], {start.id}
    for found in able[1:]:
        best: Candidate | None = None
        best_score = (-1, 0)
        for candidate in found:
            if candidate.id in ids:
                continue
            reach = links.get(candidate.id, frozenset())
            inside = len(reach & ids)
            score = (inside, inside - len(reach))
            if score > best_score and not (linked and inside < len(ids)):
                best, best_score = candidate, score
        if best is None:
            return None
        grown.append(best)
        ids.add(best.id)
    return grown


def _matched(able: Sequence[Sequence[Candidate]]) -> list[Candidate] | None:
    need_of: dict[str, int] = {}
    device_of: dict[int, Candidate] = {}

    def augment(need: int, seen: set[str]) -> bool:
        for candidate in able[need]:
            if candidate.id in seen:
                continue
            seen.add(candidate.id)
            if candidate.id not in need_of or augment(need_of[candidate.id], seen):
                need_of[candidate.id] = need
                device_of[need] = candidate
                return True
        return False

    if not all(augment(need, set()) for need in range(len(able))):
        return None
    return [device_of[need] for need in range(len(able))]
