"""``CpuSparse``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.sparse import products
from callboard.backends.cpu.sparse.rows import Rows
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.library import modules_of, plans
from callboard.kernel.sparse import SpMm, SpMv

__all__ = ["CpuSparse"]


class CpuSparse(CpuLibrary):
    """Serves :mod:`callboard.kernel.sparse` with :mod:`scipy.sparse`; halves are computed in f32."""

    name = "sparse"
    implementation = "scipy"
    modules = modules_of(__name__)
    brief = False  # what a factorisation or product of sparse matrices costs depends on the entries

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        self.rows = Rows()

    def close(self) -> None:
        self.rows.close()

    @plans(SpMm, SpMv)
    def dense_product(self, op: SpMm | SpMv) -> products.Plan:
        return products.dense_product(op, self.rows)
