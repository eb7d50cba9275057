"""``TorchBackend``: the devices of one kind that PyTorch finds."""

import platform
from collections.abc import Iterator, Mapping
from typing import ClassVar

from callboard.backends.torch.library import TorchLibrary
from callboard.backends.torch.vendor import KINDS, required, torch
from callboard.core.backend import AccelBackend, AccelDevice, DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library, LibraryTable

__all__ = ["TorchBackend"]

LIBRARIES = LibraryTable(
    "callboard.backends.torch",
    array="TorchArray",
    attention="TorchAttention",
    blas="TorchBlas",
    cub="TorchCub",
    dnn="TorchDnn",
    elementwise="TorchElementwise",
    fft="TorchFft",
    memory="TorchMemory",
    rng="TorchRng",
    solver="TorchSolver",
    tensor="TorchTensor",
)


class TorchBackend(AccelBackend):
    """PyTorch's devices of one kind; without a kind a name only, by which the kinds are found.

    Args:
        kind: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"xpu"``.
    """

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.kinds = () if kind else tuple(KINDS)
        self.name = f"torch:{kind}" if kind else "torch"
        self.isolation = "thread" if kind == "cpu" else "process"

    def of_kind(self, kind: str) -> "TorchBackend":
        if kind not in KINDS:
            raise BackendUnavailable(f"torch has no devices called {kind!r}; {_KINDS_SAID}")
        return TorchBackend(kind)

    def devices(self) -> list[DeviceInfo]:
        if not self.kind:
            raise BackendUnavailable(f"torch has several kinds of devices: name one; {_KINDS_SAID}")
        required()
        if self.kind == "cpu":
            return [DeviceInfo(self.name, 0, "TORCH-CPU-0", platform.processor() or platform.machine(), 0)]
        interface = getattr(torch, self.kind)
        if not interface.is_available():
            raise BackendUnavailable(f"this PyTorch, {torch.__version__}, finds no {KINDS[self.kind]}")
        return [self._info(index) for index in range(interface.device_count())]

    def _info(self, index: int) -> DeviceInfo:
        uuid = f"TORCH-{self.kind.upper()}-{index}"
        if self.kind == "mps":
            return DeviceInfo(self.name, index, uuid, "Metal", torch.mps.recommended_max_memory())
        properties = getattr(torch, self.kind).get_device_properties(index)
        return DeviceInfo(self.name, index, uuid, properties.name, properties.total_memory)

    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        return {}  # a host sees all devices of its kind, and uses that of its index

    def libraries(self) -> Mapping[str, type[Library]]:
        return OfKind(self.kind)

    def preload(self) -> None:
        required()
        list(self.libraries().values())
        torch.zeros(())  # imports it

    def open(self, info: DeviceInfo) -> AccelDevice:
        from callboard.backends.torch.device import TorchDevice

        self.preload()
        return TorchDevice(info, self.kind)


_KINDS_SAID = "there are " + ", ".join(f"torch:{kind} ({what})" for kind, what in KINDS.items())


class OfKind(Mapping[str, type[Library]]):
    """The libraries as a kind of device has them."""

    _made: ClassVar[dict[tuple[str, str], type[Library]]] = {}

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __getitem__(self, name: str) -> type[Library]:
        made = self._made.get((self._kind, name))
        if made is None:
            cls = LIBRARIES[name]
            made = type(cls.__name__, (cls,), {"kind": self._kind}) if issubclass(cls, TorchLibrary) else cls
            self._made[self._kind, name] = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(LIBRARIES)

    def __len__(self) -> int:
        return len(LIBRARIES)
