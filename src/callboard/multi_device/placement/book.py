"""``PlacementBook``: the devices, their reservations, and the next choice. Pure: time is an argument."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callboard.multi_device.placement.errors import NoEligibleDevice
from callboard.multi_device.placement.gangs import best_set
from callboard.multi_device.placement.hints import Candidate, PlacementHints
from callboard.multi_device.placement.policies import Chooser

__all__ = ["Explanation", "PlacementBook", "Reservation"]

ALONE: frozenset[str] = frozenset()
ANY = (0, 0)


@dataclass(eq=False, slots=True)
class Reservation:
    """A choice, and its resources on the device until it is released or its lease ends.

    Attributes:
        candidate: The chosen device.
        hints: Requirements of the work.
        active: True if it holds anything.
    """

    candidate: Candidate
    hints: PlacementHints
    active: bool = True


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a device would be chosen, or none.

    Attributes:
        chosen: Id of the device; None if none can take the work.
        able: Ids of the devices that can take it.
        refused: The reason why not, for each of the others.
        figures: The figures that the policy compares, as text, for each device that can take the work.
    """

    chosen: str | None
    able: tuple[str, ...]
    refused: Mapping[str, str]
    figures: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"chosen: {self.chosen or 'none'}", f"able: {', '.join(self.able) or 'none'}"]
        return "; ".join(said + [f"{device}: {why}" for device, why in (*self.figures.items(), *self.refused.items())])


class PlacementBook:
    """Devices and reservations.

    Args:
        choose: The policy.

    Attributes:
        candidates: Candidates by id, in the order in which they were added.
        links: For each id, the ids of the devices it is linked to (NVLink, or peer access over PCIe).
    """

    def __init__(self, choose: Chooser) -> None:
        self.candidates: dict[str, Candidate] = {}
        self.links: dict[str, frozenset[str]] = {}
        self._choose = choose
        self._leases: list[tuple[float, int, Reservation]] = []
        self._turn = 0

    # -- devices -------------------------------------------------------------------------------------------------------

    def add(self, candidate: Candidate) -> None:
        """Place on this device, too.

        Raises:
            ValueError: There is one of this id.
        """
        if candidate.id in self.candidates:
            raise ValueError(f"there is a device {candidate.id!r} already")
        self.candidates[candidate.id] = candidate

    def remove(self, device: str) -> None:
        """Place nothing more on this device; its reservations become void. Does nothing if the device is unknown."""
        self.candidates.pop(device, None)

    # -- choices -------------------------------------------------------------------------------------------------------

    def pick(self, hints: PlacementHints, now: float, lease: float | None = None) -> Reservation:
        """Choose a device, and reserve the required resources there.

        Args:
            hints: The needs.
            now: Seconds, on a clock that does not go back.
            lease: Seconds until the reservation ends by itself; None: it does not.

        Raises:
            NoEligibleDevice: No device can take it; the text names the reason for each of them.
            ValueError: ``lease`` is below 0, or no number.
        """
        _check_lease(lease)
        self.expire(now)
        able = self._able(hints)
        if not able:
            raise NoEligibleDevice(hints, self._refused(hints))
        return self._reserve(self._choose(hints, able), hints, now, lease)

    def gang(
        self, needs: Sequence[PlacementHints], now: float, lease: float | None = None, linked: bool = False
    ) -> list[Reservation]:
        """Choose as many devices as there are needs, no device twice: all, or none.

        Devices that are linked to each other are preferred (:func:`.best_set`).

        Args:
            needs: Requirements of each piece of work; the reservations are in this order.
            now, lease: See :meth:`pick`.
            linked: Accept only devices that are all linked to each other.

        Raises:
            NoEligibleDevice: There is no such set. Nothing has been reserved.
            ValueError: ``lease`` is below 0, or no number.
        """
        _check_lease(lease)
        self.expire(now)
        if not needs:
            return []
        able = [self._able(need) for need in needs]
        for need, found in zip(needs, able, strict=True):
            if not found:
                raise NoEligibleDevice(need, self._refused(need))
        chosen = best_set(able, self.links, linked)
        if chosen is None:
            wanted = "that are all linked to each other" if linked else "at once"
            raise NoEligibleDevice(needs[0], {}, f"there are no {len(needs)} devices {wanted} for this gang")
        return [self._reserve(c, need, now, lease) for c, need in zip(chosen, needs, strict=True)]

    def explain(self, hints: PlacementHints, now: float) -> Explanation:
        """The result that :meth:`pick` would have; nothing is reserved."""
        self.expire(now)
        able = self._able(hints)
        chosen = self._choose(hints, able).id if able else None
        return Explanation(chosen, tuple(c.id for c in able), self._refused(hints), {c.id: c.described() for c in able})

    # -- reservations --------------------------------------------------------------------------------------------------

    def release(self, reservation: Reservation) -> None:
        """Release the reservation; does nothing the second time."""
        if not reservation.active:
            return
        reservation.active = False
        candidate, hints = reservation.candidate, reservation.hints
        candidate.choices -= 1
        candidate.reserved_bytes -= hints.memory_bytes
        candidate.reserved_streams -= hints.streams
        if hints.apart is not None:
            candidate.apart.discard(hints.apart)

    def expire(self, now: float) -> None:
        """End the leases whose time has come."""
        leases = self._leases
        while leases and (leases[0][0] <= now or not leases[0][2].active):
            self.release(heapq.heappop(leases)[2])

    def _reserve(self, candidate: Candidate, hints: PlacementHints, now: float, lease: float | None) -> Reservation:
        reservation = Reservation(candidate, hints)
        self._turn += 1
        candidate.turn = self._turn
        candidate.choices += 1
        candidate.reserved_bytes += hints.memory_bytes
        candidate.reserved_streams += hints.streams
        if hints.apart is not None:
            candidate.apart.add(hints.apart)
        if lease is not None:
            heapq.heappush(self._leases, (now + lease, self._turn, reservation))
        return reservation

    def _able(self, hints: PlacementHints) -> list[Candidate]:
        """The candidates for which :meth:`.Candidate.why_not` is None; rarely used conditions are checked last."""
        able = [c for c in self.candidates.values() if c.ready]
        if wanted := max(hints.memory_bytes, hints.min_free_bytes):
            able = [c for c in able if c.free_bytes - c.reserved_bytes >= wanted]
        if streams := hints.streams:
            able = [c for c in able if c.streams - c.reserved_streams >= streams]
        if (least := hints.min_compute_cap) != ANY:
            able = [c for c in able if c.compute_cap >= least]
        if hints.near or hints.avoid or hints.backend is not None or hints.apart is not None:
            able = [c for c in able if c.why_not(hints, self.links.get(c.id, ALONE)) is None]
        return able

    def _refused(self, hints: PlacementHints) -> dict[str, str]:
        reasons = {c.id: c.why_not(hints, self.links.get(c.id, ALONE)) for c in self.candidates.values()}
        return {device: reason for device, reason in reasons.items() if reason is not None}


def _check_lease(lease: float | None) -> None:
    if lease is not None and not lease >= 0:
        raise ValueError(f"lease is {lease}; it is a number of seconds from 0, or None for no end")
