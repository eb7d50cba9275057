"""The weight layout of cuDNN, and the copies from the caller's packed weights into it.

The packed order was chosen to be cuDNN's, so that nothing is copied. It is still queried for every network: if it
differs, and for a layer that is executed separately, runs of weights are copied on the stream.
"""

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from callboard.backends.cuda.dnn.legacy import INT, PTR, SIZE, Destroyed
from callboard.backends.cuda.dnn.rnn.descriptors import Descriptors
from callboard.core.errors import LibraryError
from callboard.kernel.dnn.rnn.params import RnnParams, WeightSlot

if TYPE_CHECKING:
    from callboard.backends.cuda.driver import Driver

__all__ = ["WeightPlacing", "slots_of"]

PROJECTION = 8
"""Number of the projection among the matrices of an LSTM."""
Key = tuple[int, bool, str]


class Run(NamedTuple):
    """Bytes that are contiguous on both sides."""

    theirs: int
    ours: int
    nbytes: int


def slots_of(params: RnnParams, layer: int | None = None) -> dict[Key, WeightSlot]:
    """The weights of a network by layer, direction and kind; of one layer, as those of a network with one."""
    return {
        (0 if layer is not None else slot.layer, slot.reverse, slot.kind): slot
        for slot in params.slots()
        if layer is None or slot.layer == layer
    }


class WeightPlacing:
    """The weights of a network on their way to cuDNN and back.

    Args:
        driver: Driver that copies.
        network: Descriptors of the network.
        slots: Location of each weight in the caller's packed array.
        base: Any address on the device; nothing is read there.

    Attributes:
        direct: cuDNN takes them as the caller packed them.
        nbytes: Bytes that cuDNN needs for the weights.
    """

    def __init__(self, driver: "Driver", network: Descriptors, slots: Mapping[Key, WeightSlot], base: int) -> None:
        self._driver = driver
        self.nbytes = network.sizes.weights
        self._runs = _joined(_asked(network, slots, base))
        first = min(slot.start for slot in slots.values()) * network.dtype.itemsize
        self.direct = first == 0 and self._runs == [Run(0, 0, self.nbytes)]

    def bring(self, stream: int, packed: int, to: int) -> None:
        """Copy them to where cuDNN reads them."""
        for run in self._runs:
            self._copy(to + run.theirs, packed + run.ours, run.nbytes, stream)

    def deliver(self, stream: int, found: int, packed: int) -> None:
        """Copy gradients back."""
        for run in self._runs:
            self._copy(packed + run.ours, found + run.theirs, run.nbytes, stream)

    def _copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._driver.check(self._driver.memcpy_dtod(to, source, nbytes, stream), "cuMemcpyDtoDAsync")


def _asked(network: Descriptors, slots: Mapping[Key, WeightSlot], base: int) -> list[Run]:
    """The location of each gate's rows in cuDNN's layout."""
    cudnn, params, size = network.cudnn, network.params, network.dtype.itemsize
    query = cudnn.plain("cudnnGetRNNWeightParams", PTR, PTR, INT, SIZE, PTR, INT, PTR, PTR, PTR, PTR)
    destroyed, runs, gates = Destroyed(), list[Run](), params.gates
    kinds = [("weight_ih", "bias_ih", 0), ("weight_hh", "bias_hh", gates)]
    try:
        matrix, bias = (cudnn.descriptor("Tensor", destroyed) for _ in range(2))
        for layer in range(params.num_layers):
            for reverse in (False, True)[: params.directions]:
                cell = layer * params.directions + reverse
                wanted = [(first + gate, gate, names) for *names, first in kinds for gate in range(gates)]
                wanted += [(PROJECTION, 0, ["weight_hr"])] if params.proj_size else []
                for number, gate, names in wanted:
                    addresses = [ctypes.c_void_p(), ctypes.c_void_p()]
                    at = [ctypes.byref(address) for address in addresses]
                    query(
                        cudnn.preparing, network.network, cell, network.sizes.weights, base, number,
                        matrix, at[0], bias, at[1],
                    )  # fmt: skip
                    for name, address in zip(names, addresses, strict=False):
                        slot = slots.get((layer, reverse, name))
                        if slot is None:
                            continue
                        if not address.value:
                            raise LibraryError(f"cudnnGetRNNWeightParams has no {slot.name}", "cudnn")
                        rows = slot.size // (1 if name == "weight_hr" else gates)
                        runs.append(Run(address.value - base, (slot.start + gate * rows) * size, rows * size))
    finally:
        destroyed.close()
    return runs


def _joined(runs: list[Run]) -> list[Run]:
    """Merge adjacent runs."""
    found: list[Run] = []
    for run in sorted(runs):
        last = found[-1] if found else None
        if last and last.theirs + last.nbytes == run.theirs and last.ours + last.nbytes == run.ours:
            found[-1] = last._replace(nbytes=last.nbytes + run.nbytes)
        else:
            found.append(run)
    return found
