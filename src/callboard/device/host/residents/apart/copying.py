"""``copy_to``: copies device arrays that an actor gives to memory of the device's own host."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.core.layout import layout_of
from callboard.device.host.residents.item import Site
from callboard.device.host.residents.operands import Adopted, DeviceView
from callboard.device.protocol.residents.hostview import host_view
from callboard.device.protocol.residents.regions import places

if TYPE_CHECKING:
    from callboard.device.inside.device import LocalDevice

__all__ = ["copy_to"]


def copy_to(
    refs: list[Adopted], room: Callable[[int], int], site: Site, device: "Callable[[], LocalDevice]"
) -> list[list[Any]]:
    """Copy arrays, row-major, after the work that the actor has enqueued; an array that occurs twice is copied once.

    Args:
        refs: Arrays that ``ctx.ref`` returned.
        room: Returns the address of a number of bytes.
        site: Host or process that the actor lives in.
        device: The actor's ``ctx.device``.

    Returns:
        ``[offset, dtype, shape]`` of each in that memory.
    """
    once = {id(ref): ref for ref in refs}
    layouts = {key: layout_of(ref.layout.dtype, ref.layout.shape) for key, ref in once.items()}
    offsets, nbytes = places(layout.nbytes for layout in layouts.values())
    at = dict(zip(once, offsets, strict=True))
    base = room(max(nbytes, 1))
    for key, ref in once.items():
        source, target = ref.block.address + ref.offset, base + at[key]
        if not ref.layout.size:
            continue
        if site.on_host:
            host_view(target, layouts[key], True)[...] = host_view(source, ref.layout, False)
        else:
            stream, ordinal = site.timeline.stream, site.ordinal
            device().copy(
                DeviceView(source, ref.layout, False, ordinal, stream),
                DeviceView(target, layouts[key], True, ordinal, stream),
            )
    return [[at[id(ref)], layouts[id(ref)].dtype.code, layouts[id(ref)].shape] for ref in refs]
