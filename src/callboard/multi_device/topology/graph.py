"""``P2pGraph``: devices and the links between them. Pure."""

from collections.abc import Mapping, Sequence

from callboard.core.links import Link

__all__ = ["P2pGraph"]


class P2pGraph:
    """A snapshot of peer access between devices.

    Args:
        names: Names of the devices by UUID, in order.
        links: Each pair once, in either order; of other devices, they are left out.
        away: The reason why a device reaches no other now, by UUID.

    Attributes:
        devices: UUIDs, in order.
        links: Links between these devices, by ``(uuid, uuid)`` in both orders, including devices that are away.
    """

    def __init__(self, names: Mapping[str, str], links: Sequence[Link], away: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._away = dict(away)
        self.devices = tuple(names)
        self.links: dict[tuple[str, str], Link] = {}
        for link in links:
            if link.one in names and link.other in names and link.one != link.other:
                self.links[link.one, link.other] = self.links[link.other, link.one] = link

    @property
    def device_count(self) -> int:
        return len(self.devices)

    @property
    def edges(self) -> dict[str, frozenset[str]]:
        """For each device those whose memory it reaches directly now."""
        return {one: frozenset(o for o in self.devices if self.can_pair(one, o)) for one in self.devices}

    def can_pair(self, one: str, other: str) -> bool:
        """True if two different devices can access each other's memory directly now.

        Raises:
            KeyError: A UUID is not of these devices.
        """
        for uuid in (one, other):
            if uuid not in self._names:
                raise KeyError(f"{uuid!r}: the devices are {', '.join(self.devices)}")
        link = self.links.get((one, other))
        return link is not None and link.direct and not (one in self._away or other in self._away)

    def islands(self) -> list[frozenset[str]]:
        """The sets of devices that reach each other, over others of the set too; in the order of their first device."""
        edges, left, found = self.edges, dict.fromkeys(self.devices), []
        while left:
            island: set[str] = set()
            new = {next(iter(left))}
            while new:
                island |= new
                new = {o for one in new for o in edges[one]} - island
            found.append(frozenset(island))
            for uuid in island:
                del left[uuid]
        return found

    def explain(self) -> str:
        """A line for each device that is away, for each pair, and for each island."""
        lines = [f"{self._names[uuid]}: {self._away[uuid]}" for uuid in self.devices if uuid in self._away]
        for at, one in enumerate(self.devices):
            for other in self.devices[at + 1 :]:
                link = self.links.get((one, other))
                how = "no link is known; copies go through host memory" if link is None else described(link)
                lines.append(f"{self._names[one]} - {self._names[other]}: {how}")
        lines += [
            "island: " + ", ".join(self._names[u] for u in self.devices if u in island) for island in self.islands()
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<P2pGraph of {self.device_count} devices in {len(self.islands())} islands>"


def described(link: Link) -> str:
    """A link in words."""
    if link.kind == "shared memory":
        return "host memory of both"
    words = ["NVLink" if link.kind == "nvlink" else "PCIe"]
    if link.generation:
        words.append(str(link.generation))
    if link.count:
        words.append(f"({link.count} links)")
    if link.width:
        words.append(f"x{link.width}")
    if link.ancestor:
        words.append(f"by {link.ancestor}")
    if not link.direct:
        words.append("without peer access; copies go through host memory")
    return " ".join(words)
