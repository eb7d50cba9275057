"""``TorchMemory``: fills and copies, on the device and to and from the host."""

from callboard.backends.torch.conversion import element, number_of
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor
from callboard.backends.torch.views import View
from callboard.core.backend import Status
from callboard.core.backend.workers import WorkerStream
from callboard.core.layout import Layout
from callboard.core.library import launches, plans, prepares
from callboard.core.operand import Operand
from callboard.kernel.memory import Copy, Download, Empty, Fill, Upload

__all__ = ["TorchMemory"]


def _complex_into_real(op: Fill) -> str | None:
    if isinstance(op.fill_value, Operand) and op.fill_value.dtype.is_complex and not op.out.dtype.is_complex:
        return f"fill_value is {op.fill_value.layout!r} and out is {op.out.layout!r}; take its real part first"
    return None


class TorchMemory(TorchLibrary):
    """Serves :mod:`callboard.kernel.memory`."""

    name = "memory"

    @launches(Empty)
    def empty(self, stream: WorkerStream, plan: Empty, out: int) -> None:
        """Do nothing: the host has allocated it."""

    @plans(Fill, refuses=_complex_into_real)
    def plan_fill(self, op: Fill) -> Plan:
        layout, given = op.out.layout, op.fill_value
        return self.planned(
            op,
            lambda value: (
                element(number_of(value, given.dtype) if isinstance(given, Operand) else value, layout.dtype)
                .to(self.where)
                .expand(layout.shape)
            ),
        )

    @plans(Copy)
    def plan_copy(self, op: Copy) -> Plan:
        return self.planned(op, lambda src: src)

    @prepares(Upload, inline=True)
    def plan_upload(self, op: Upload) -> tuple[View, View]:
        out = op.infer()["out"] if op.out is None else op.out.layout
        return self._pair(op.host.layout, out, host_first=True)

    @launches(Upload)
    def upload(self, stream: WorkerStream, plan: tuple[View, View], host: int, out: int) -> Status:
        return stream.run(self.name, _copied, *plan, plan[0].at(host), plan[1].at(out))

    @prepares(Download, inline=True)
    def plan_download(self, op: Download) -> tuple[View, View]:
        return self._pair(op.src.layout, op.host.layout, host_first=False)

    @launches(Download)
    def download(self, stream: WorkerStream, plan: tuple[View, View], src: int, host: int, after: int | None) -> Status:
        return stream.run(self.name, _copied, *plan, plan[0].at(src), plan[1].at(host))

    def _pair(self, source: Layout, out: Layout, host_first: bool) -> tuple[View, View]:
        return View(self.device, source, host_first), View(self.device, out, not host_first)


def _copied(source: View, out: View, from_there: Tensor, to: Tensor) -> None:
    out.write(to, source.read(from_there))
