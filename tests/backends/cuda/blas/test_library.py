"""The handle.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

from typing import Any

import pytest
from blas_host import Host
from host_cublas import HostCublas

from callboard.core.errors import BackendUnavailable, LibraryError, OutOfMemory
from callboard.kernel.blas import Gemm, Nrm2, Syrk


def test_a_failed_call_is_a_library_error(host: Host, binding: HostCublas) -> None:
    a = host.matrix(4, 4, "f32")
    binding.fails["sgemm"] = 13
    with pytest.raises(LibraryError, match="sgemm: status 13") as caught:
        host.session.submit(Gemm(a=a, b=a))
    assert (caught.value.lib, caught.value.code) == ("cublas", 13)
    binding.fails["ssyrk"] = 3
    with pytest.raises(OutOfMemory, match="syrk"):
        host.session.submit(Syrk(a=a, c=host.matrix(4, 4, "f32")))


def test_a_handle_that_cannot_be_made(host: Host, binding: HostCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    binding.fails["create"] = 1
    with pytest.raises(LibraryError, match="cublasCreate"):
        host.session.submit(Nrm2(x=host.vector(3, "f32")))
    monkeypatch.setattr(HostCublas, "create", _missing)
    with pytest.raises(BackendUnavailable, match=r"libcublas.*callboard\[cuda13\]"):
        host.session.submit(Nrm2(x=host.vector(3, "f32")))


def _missing(self: HostCublas) -> int:
    raise RuntimeError("Failed to dlopen libcublas.so.13")


def test_closing_gives_everything_back(host: Host, binding: HostCublas, driver: Any) -> None:
    host.session.submit(Nrm2(x=host.vector(3, "f32")))
    host.session.close()
    assert binding.calls[-1][0] == "destroy"
    assert "primary_release" in driver.calls
    assert driver.pinned == {}
    assert not [a for a, b in driver.blocks.items() if b.nbytes >= 1 << 20]


def test_warm_up_multiplies_once(host: Host, binding: HostCublas) -> None:
    host.session._library("blas").warm_up()
    assert [name for name, _ in binding.calls] == ["sgemm"]


def test_a_handle_without_room_for_its_workspace_is_given_back(host: Host, binding: HostCublas, driver: Any) -> None:
    session = host.session
    x = host.vector(3, "f32")
    driver.statuses["mem_alloc"] = 2
    stream = session.device.stream()
    with pytest.raises(OutOfMemory):
        session.classes["blas"](session.device, stream)
    assert [name for name, _ in binding.calls] == ["destroy"]
    driver.statuses.clear()
    assert session.submit(Nrm2(x=x)) > 0
