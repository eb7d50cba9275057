"""``TorchFft``: transforms of arrays and of batches with strides and distances."""

from collections.abc import Mapping
from typing import Any, ClassVar

from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import fft
from callboard.kernel.fft.transform import Side, Transform

__all__ = ["TorchFft"]

_NO_SOURCE = "its functions are CUDA C++, which PyTorch does not compile into a transform"


class TorchFft(TorchLibrary):
    """Serves :mod:`callboard.kernel.fft`."""

    name = "fft"
    refused: ClassVar[Mapping[Any, str]] = {fft.FftWithCallback: _NO_SOURCE}

    @plans(fft.Fft, fft.Irfft, fft.IrfftOverwrite, fft.Rfft)
    def whole(self, op: Any) -> Plan:
        transform = op.transform()

        def work(x: Tensor) -> Any:
            found = _stored(_transformed(transform, _numbers(transform.src, x)), transform.out)
            return (None, found) if isinstance(op, fft.IrfftOverwrite) else found

        return self.planned(op, work)

    @plans(fft.FftPlanMany)
    def many(self, op: fft.FftPlanMany) -> Plan:
        transform = op.transform()

        def work(x: Tensor, out: Tensor) -> Tensor:
            return _scattered(
                transform, out, _transformed(transform, _numbers(transform.src, _strided(transform.src, x)))
            )

        return self.planned(op, work)

    @plans(fft.FftPlanManyInPlace)
    def in_place(self, op: fft.FftPlanManyInPlace) -> Plan:
        transform = op.transform()

        def work(x: Tensor) -> Tensor:
            source = x.clone().view(-1)
            found = _transformed(transform, _numbers(transform.src, _strided(transform.src, source)))
            return _scattered(transform, x, found)

        return self.planned(op, work)


def _transformed(transform: Transform, x: Tensor) -> Tensor:
    if not x.numel() or not transform.out.size:
        wide = x.abs() if transform.kind == "C2R" else x + 0j if transform.kind == "R2C" else x
        return wide.new_empty(transform.out.shape)
    inverse = transform.direction == "inverse"
    options = {"dim": transform.axes, "norm": transform.norm}
    if transform.kind == "R2C":
        return torch.fft.rfftn(x, **options)
    if transform.kind == "C2R":
        return torch.fft.irfftn(x, s=transform.lengths, **options)
    return torch.fft.ifftn(x, **options) if inverse else torch.fft.fftn(x, **options)


def _numbers(side: Side, x: Tensor) -> Tensor:
    """The array as PyTorch transforms it: halves in single precision, pairs as complex numbers."""
    if x.dtype != torch.float16:
        return x
    x = x.to(torch.float32)
    return torch.view_as_complex(x.contiguous()) if side.is_complex else x


def _stored(found: Tensor, side: Side) -> Tensor:
    return torch.view_as_real(found) if side.is_complex and side.real.name == "f16" else found


def _strided(side: Side, flat: Tensor) -> Tensor:
    """The transforms of a batch in an array without gaps, of whichever type, as the side has them."""
    layout = side.layout
    octets = flat.contiguous().view(-1).view(torch.uint8)
    room = octets.numel() // layout.dtype.itemsize * layout.dtype.itemsize
    dtype = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64}
    elements = octets[:room].view(dtype.get(layout.dtype.name, torch.complex128))
    return torch.as_strided(elements, layout.shape, layout.strides)


def _scattered(transform: Transform, out: Tensor, found: Tensor) -> Tensor:
    """A copy of the array in which the results are at their places."""
    into = out.clone(memory_format=torch.contiguous_format)
    _strided(transform.out, into).copy_(_stored(found, transform.out))
    return into
