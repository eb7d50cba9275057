"""A context that cannot be made gives its device back."""

import pytest
from tests.device.host.context.hosting import Hosted
from tests.device.steps import StepsBackend

from callboard.core.backend import AccelDevice
from callboard.core.errors import OutOfMemory


class NoLibraries(StepsBackend):
    """Opens devices, and then has no memory for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def open(self, info: object) -> AccelDevice:
        device = super().open(info)  # type: ignore[arg-type]
        close = device.close

        def counted() -> None:
            self.closed += 1
            close()

        device.close = counted  # type: ignore[method-assign]
        return device

    def libraries(self) -> dict[str, type]:  # type: ignore[override]
        raise OutOfMemory("no memory for the libraries")


def test_a_failing_context_closes_its_device_once() -> None:
    backend = NoLibraries()
    with pytest.raises(OutOfMemory, match="no memory for the libraries"):
        Hosted(backend)
    assert backend.closed == 1
