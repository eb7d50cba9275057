"""Errors that arise in the application: of calls that are refused before anything is sent, and of lost contexts."""

from collections.abc import Sequence
from typing import Any, TypeVar

from callboard.core.errors import (
    AccelError,
    ContextPoisoned,
    DeviceMismatch,
    DeviceStopped,
    GpuRefStale,
    MailboxFull,
    ShapeError,
    Suspect,
    UnsupportedOp,
)
from callboard.core.layout import OpenLayout
from callboard.core.op import Op, info_of
from callboard.core.ref import GpuRef, RefPort
from callboard.device.config import DeviceConfig

__all__ = ["lost", "marked", "no_room", "open_extents", "unsupported", "unusable"]

E = TypeVar("E", bound=BaseException)


def marked(error: E, device: str, generation: int, tag: str | None = None) -> E:
    """The error with ``device``, ``generation`` and ``op`` set (also for an error of user code)."""
    if isinstance(error, AccelError):
        error.device = device
        error.op = tag or error.op
        if error.generation is None:
            error.generation = generation
    return error


def lost(error: AccelError, generation: int, suspects: Sequence[Suspect]) -> AccelError:
    """The loss of a context, for one of the ops that were in flight: each gets an error of its own."""
    one = type(error)(str(error))
    vars(one).update(vars(error))
    vars(one).pop("__notes__", None)  # a list: each gets its own
    for note in getattr(error, "__notes__", ()):
        one.add_note(note)
    if isinstance(one, ContextPoisoned):
        one.suspects = tuple(suspects)
    one.generation = generation
    one.__cause__ = error.__cause__
    return one


def unsupported(backend: str, tag: str, why: str) -> UnsupportedOp:
    """The backend does not execute the op."""
    return UnsupportedOp(f"{backend}, {tag}: {why}")


def no_room(name: str, stopped: str | None, ready: bool, config: DeviceConfig) -> AccelError:
    """The error of a call to a device that has stopped, or at which the most ops wait."""
    if stopped is not None:
        return DeviceStopped(f"{name} has stopped: {stopped}; open the device again")
    if not ready:
        return MailboxFull(
            f"{name}: no context is ready and {config.pending_capacity} ops wait for it (pending_capacity); "
            "await dev.ready() or dev.room(n)"
        )
    return MailboxFull(
        f"{name}: {config.max_in_flight} ops are in flight (max_in_flight); "
        "await dev.room(n), or results, before calling more"
    )


def unusable(port: RefPort, tag: str, op: Op[Any, Any], ref: Any) -> AccelError:
    """An operand that is stale, freed or on another device."""
    info = info_of(type(op))
    name = next((info.called(leaf) for leaf in info.leaves(op) if leaf.value is ref), "?")
    if not isinstance(ref, GpuRef):
        if ref._port is port:  # a host array on its way, and the context was lost on another thread meanwhile
            return GpuRefStale(f"{tag} on {port.name}: context rebuilt; call it again", "context rebuilt")
        return DeviceMismatch(f"{tag}: {name} is {type(ref).__name__}; pass a GpuRef of {port.name}")
    if ref._port is not port:
        # The same GPU can be open twice: in two systems, or again after it was closed.
        where = ref.device if ref.device != port.name else f"another handle of {port.name}, opened separately"
        return DeviceMismatch(
            f"{tag}: {name} {ref.layout!r} is on {where}, the op on {port.name}; copy it there first: ref.to(device)"
        )
    reason = ref._why_stale() or "context rebuilt"
    cure = "use it before free()" if reason == "freed" else "put or compute it again in this generation"
    error = GpuRefStale(f"{tag}: {name} {ref.layout!r} on {ref.device}: {reason}; {cure}", reason)
    error.generation = ref.generation
    return error


def open_extents(op: Op[Any, Any]) -> ShapeError | None:
    """An operand whose extents are not known yet; None if the op has none."""
    info = info_of(type(op))
    for leaf in info.leaves(op):
        if isinstance(getattr(leaf.value, "layout", None), OpenLayout):
            return ShapeError(
                f"{info.tag}: {info.called(leaf)} is {leaf.value.layout!r}, and its extents depend on data: await it "
                "first, or have the op that makes it write to given arrays (out=, count=)"
            )
    return None
