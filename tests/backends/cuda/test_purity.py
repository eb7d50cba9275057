"""Modules loaded by importing the backend."""

import subprocess
import sys

import pytest

VENDORS = ("cuda", "cupy", "nvmath", "torch", "nvidia")

PROGRAM = f"""
import sys
from callboard.backends.cuda import backend
libraries = backend.libraries()
from callboard.kernel.blas import Gemm
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
a = Placeholder(layout_of(DTYPES["f32"], (4, 4)))
assert libraries["blas"].why_not(Gemm(a=a, b=a)) is None
loaded = [m for m in sys.modules if m.partition(".")[0] in {VENDORS!r}]
assert not loaded, loaded
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
assert "libcuda.so" not in maps and "libcublas" not in maps
"""


@pytest.mark.timeout(70)
def test_the_backend_and_its_capabilities_load_no_vendor_package() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
