import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callboard.kernel.blas import Gemm
from callboard.kernel.blas_lt import Matmul
from callboard.kernel.memory import Copy
from callboard.kernel.solver import SparseLu
from callboard.testing.gpu_check import sources
from callboard.testing.gpu_check.sources import all_ops, op_sources, ops_of, source_hash

LIBRARY = """
from callboard.core.library import Library, launches, prepares
from callboard.kernel.blas import Dot, Gemm

class Sample(Library):
    name = "blas"

    @launches(Gemm)
    def gemm(self, stream, plan, a, b, out, c, alpha, beta):
        return {value}
"""


def load(path: Path, name: str, value: int) -> ModuleType:
    path.write_text(LIBRARY.format(value=value), "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_hash_follows_the_source_of_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sample_a", "sample_b", "sample_c"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # and removed again
        (tmp_path / name).mkdir()
    modules = [
        load(tmp_path / name / "blas.py", name, value)
        for name, value in (("sample_a", 1), ("sample_b", 2), ("sample_c", 1))
    ]
    one, other, same = (source_hash(Gemm, module.Sample) for module in modules)
    assert one != other
    assert one == same


def files(op: type[Any], backend: str) -> set[str]:
    """What the hash of an op is made of."""
    opened: set[str] = set()
    read = Path.read_bytes

    def noted(path: Path) -> bytes:
        opened.add(str(path.relative_to(sources.SOURCE)))
        return read(path)

    library = ops_of(backend)[op]  # imports it, and pytest reads what it rewrites in the same way
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", noted)
        sources._hash.__wrapped__("callboard.kernel." + op.__module__.split(".")[2], library)
    return opened


def test_a_proof_rests_on_the_library_its_device_code_and_the_envelope() -> None:
    found = files(Gemm, "cuda")
    for name in ("kernel/blas/face.py", "backends/cuda/blas/norms.py", "backends/cuda/data/blas.cu"):
        assert name in found
    for name in (
        "core/opinfo.py",
        "device/context/admission/admission.py",
        "backends/cuda/stream.py",
        "backends/cuda/device.py",
    ):
        assert name in found
    for name in ("kernel/memory.py", "backends/cpu/blas/level3.py", "backends/cuda/devices.py", "device/actor.py"):
        assert name not in found
    assert "backends/cuda/data/memory.cu" in files(Copy, "cuda")
    assert "backends/cuda/data/blas.cu" not in files(Copy, "cuda")


def test_a_proof_rests_on_what_other_libraries_lend_to_its_messages() -> None:
    found = files(Matmul, "cuda")
    assert "kernel/blas/strides.py" in found
    assert "kernel/face.py" in found
    assert "kernel/blas/level3.py" not in found
    assert "kernel/sparse/checks.py" in files(SparseLu, "cuda")
    assert "kernel/blas/strides.py" in files(Matmul, "cpu")


def test_a_proof_rests_on_every_header_that_its_device_code_includes() -> None:
    data = sources.SOURCE / "backends" / "cuda" / "data"
    one_of_each = {library: op for op, library in ops_of("cuda").items()}
    users = 0
    for library, op in one_of_each.items():
        found = {name for name in files(op, "cuda") if name.endswith((".cu", ".cuh"))}
        texts = [(sources.SOURCE / name).read_text("utf-8") for name in found]
        included = {header for text in texts for header in re.findall('#include "(.+)"', text)}
        assert {str((data / header).relative_to(sources.SOURCE)) for header in included} <= found, library
        users += "backends/cuda/data/numbers.cuh" in found
    assert users > 5
    assert "backends/cuda/data/numbers.cuh" in files(Gemm, "cuda")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_op_has_a_hash(backend: str) -> None:
    sources = op_sources(backend)
    assert len(sources) == len(ops_of(backend))
    assert all(len(value) == 16 for value in sources.values())
    assert len(set(sources.values())) > 1


def test_all_ops_are_ours_and_sorted() -> None:
    tags = [op.__module__.split(".")[1] for op in all_ops()]
    assert set(tags) == {"kernel"}


def test_included_device_code_counts(tmp_path: Path) -> None:
    for name, text in (("a.cu", '#include "b.cuh"\n'), ("b.cuh", '#include "c.cuh"\n'), ("c.cuh", ""), ("d.cuh", "")):
        (tmp_path / name).write_text(text, "utf-8")
    user = tmp_path / "user.py"
    user.write_text('kernels.get("a", "f")\n', "utf-8")
    assert sorted(path.name for path in sources._data({user}, tmp_path)) == ["a.cu", "b.cuh", "c.cuh"]
