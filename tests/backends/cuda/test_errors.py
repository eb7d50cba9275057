import pytest

from callboard.backends.cuda.errors import error_of, name_of
from callboard.core.errors import AccelError, ContextPoisoned, DriverError, OutOfMemory, Unrecoverable

STICKY = (4, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999)


@pytest.mark.parametrize(
    "codes, cls",
    [
        (STICKY, ContextPoisoned),
        ((214, 220), Unrecoverable),
        ((2,), OutOfMemory),
        ((1, 200, 201, 209, 400, 500, 701, 900, 905, 123456), DriverError),
    ],
)
def test_every_status_has_one_class(codes: tuple[int, ...], cls: type[AccelError]) -> None:
    for code in codes:
        error = error_of(code, "cuLaunchKernel", "what the driver says")
        assert type(error) is cls
        for part in ("cuLaunchKernel", name_of(code), f"({code})", "what the driver says"):
            assert part in str(error)
        if isinstance(error, DriverError):
            assert error.code == code


def test_no_context_says_the_cure() -> None:
    assert "device.use()" in str(error_of(201, "cuMemAlloc"))
