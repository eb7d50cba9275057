"""``CpuBlas``: the modules whose plans serve the messages."""

from callboard.backends.cpu.blas import level1
from callboard.backends.cpu.blas.routines import INT_MAX, routine
from callboard.backends.cpu.library import CpuLibrary
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import AnyOp, modules_of
from callboard.core.op import info_of

__all__ = ["CpuBlas"]


class CpuBlas(CpuLibrary):
    """Serves :mod:`callboard.kernel.blas` with the BLAS that SciPy brings."""

    name = "blas"
    implementation = "scipy"
    modules = modules_of(__name__)

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        routine("dgemm")  # imports SciPy now and not inside the first op

    @staticmethod
    def refuses(op: AnyOp) -> str | None:
        """The routines count in C ints."""
        vectors = CpuBlas.makers[type(op)].__module__ == level1.__name__
        for field in info_of(type(op)).dynamic:
            value = getattr(op, field.name)
            for operand in value if isinstance(value, tuple) else (value,):
                layout = getattr(operand, "layout", None)
                if layout is None:
                    continue
                largest = max((layout.size if vectors else 0, *layout.shape, *map(abs, layout.strides)), default=0)
                if largest > INT_MAX:
                    return f"{field.name} is {layout!r}; SciPy's BLAS counts and steps at most {INT_MAX} elements"
        return None
