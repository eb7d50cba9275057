"""NCCL: the only module that uses ``nccl.bindings`` of nccl4py, and NCCL's numbers.

The bindings are called with addresses; ``nccl.core`` on top of them wraps each array and stream in an object of its own
per call.
"""

import importlib
import os
from typing import Any, NamedTuple

from callboard.backends.cuda.vendor import Vendor, not_loaded
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import BackendUnavailable

__all__ = ["HOST_IMMEDIATE", "IN_DEVICE_MEMORY", "OPS", "Comm", "Elements", "Nccl", "elements", "load_nccl"]

INSTALL = 'pip install "callboard[nccl13]"'

CODES: dict[DType, int] = {
    DTYPES[name]: code
    for name, code in {
        "i8": 0,
        "u8": 1,
        "i32": 2,
        "u32": 3,
        "i64": 4,
        "u64": 5,
        "f16": 6,
        "f32": 7,
        "f64": 8,
        "bf16": 9,
        "f8_e4m3": 10,
        "f8_e5m2": 11,
    }.items()
}
"""``ncclDataType_t``."""
BYTES = CODES[DTYPES["u8"]]
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
"""``ncclRedOp_t``."""
IN_DEVICE_MEMORY, HOST_IMMEDIATE = 0, 1
"""``ncclScalarResidence_t``."""
IN_PROGRESS = 7
"""``ncclResult_t``."""

unique_ids = 0
"""Unique ids that NCCL has made in this process. For each it listens on a socket, until the ranks of a communicator
have connected; nothing closes the socket of an id that is not used."""

ENVIRONMENT = {
    # Connect all ranks when the communicator is made, on its own thread: else the first collective of each kind does,
    # on the thread that serves the host, and waits for the other ranks there.
    "NCCL_RUNTIME_CONNECT": "0",
    # NVLink SHARP takes multicast objects of the whole machine, which other programs on it may hold.
    "NCCL_NVLS_ENABLE": "0",
    # Memory of cuMemAlloc and not of cuMemCreate: on two H200s a process connects first in 70 ms instead of 526 (which
    # the devices of a world wait for after a loss), and 256 MiB are added up in the same 0.91 ms.
    "NCCL_CUMEM_ENABLE": "0",
}

Comm = Any
"""The binding's handle of a communicator."""


class Elements(NamedTuple):
    """A range of elements of an array, as given to NCCL.

    Attributes:
        code: ``ncclDataType_t`` of the elements; that of bytes for a dtype that NCCL does not support and that is only
            moved.
        scale: Elements of that type per element of the dtype.
        itemsize: Bytes of an element.
    """

    code: int
    scale: int
    itemsize: int


def elements(dtype: DType) -> Elements:
    """Return the NCCL type and count multiplier for a dtype."""
    code = CODES.get(dtype)
    if code is None:
        return Elements(BYTES, dtype.itemsize, dtype.itemsize)
    return Elements(code, 1, dtype.itemsize)


def load_nccl() -> Any:
    """The binding; NCCL itself is loaded by its first call.

    Raises:
        BackendUnavailable: It is not installed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("nccl.bindings.nccl")
    except ImportError as e:
        raise BackendUnavailable(f"NCCL cannot be used: {e}; {INSTALL}") from e


class Nccl(Vendor):
    """NCCL behind its binding, with callboard's errors.

    Args:
        library: Stands in for the binding.

    Attributes:
        version: Version of the library, ``"2.28.9"``.

    Raises:
        BackendUnavailable: The binding or the library is missing.
    """

    name = "nccl"
    no_room = ()
    install = INSTALL

    def __init__(self, library: Any = None) -> None:
        library = library or load_nccl()
        super().__init__(library, library.NCCLError)
        try:
            number = int(library.get_version())
        except self.failure as e:
            raise self.error(e, "ncclGetVersion") from None
        except Exception as e:  # pathfinder's and the binding's own, when the library or a symbol is missing
            raise not_loaded(self.name, e, self.install) from e
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def unique_id(self) -> bytes:
        """Return a new id by which the ranks of one communicator connect; this process answers them."""
        global unique_ids
        made: bytes = bytes(self.checked("ncclGetUniqueId", self.library.get_unique_id))
        unique_ids += 1
        return made

    def connect(self, size: int, rank: int, unique_id: bytes) -> Comm:
        """The communicator, connected; waits for the other ranks, without the GIL."""
        return self.checked(
            "ncclCommInitRank", self.library.comm_init_rank_scalable, size, rank, 1, bytearray(unique_id), 0
        )

    def failed(self, comm: Comm) -> str:
        """Return the error of a communicator since it was connected; empty if there is none. Any thread."""
        result = int(self.checked("ncclCommGetAsyncError", self.library.comm_get_async_error, comm))
        return "" if result in (0, IN_PROGRESS) else f"ncclResult {result}"

    def abort(self, comm: Comm) -> None:
        """End its kernels and give it back; does not wait for other ranks. Any thread, also while another uses it."""
        self.checked("ncclCommAbort", self.library.comm_abort, comm)
