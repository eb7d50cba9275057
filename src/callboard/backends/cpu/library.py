"""``CpuLibrary``: a library whose plans are functions of the launch's arguments."""

from typing import Any, ClassVar

from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.library import AnyOp, Library

__all__ = ["CpuLibrary"]


class CpuLibrary(Library):
    """Plans are made from the message alone, inline, and run on the stream's thread.

    A function registered with :func:`~callboard.core.library.plans` takes the message, with placeholders for operands,
    and returns ``plan(*dynamic)``.
    """

    inline = True
    brief = True
    implementation: ClassVar[str] = "numpy"
    """What executes the plans; named in errors."""

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self._by = self.implementation  # found faster at each launch than an attribute of the class

    def prepare(self, op: AnyOp) -> Any:
        return self.makers[type(op)](op)

    def launch(self, stream: CpuStream, plan: Any, *dynamic: Any) -> Status:
        """Run the plan after the work so far."""
        return stream.run(self._by, plan, *dynamic)
