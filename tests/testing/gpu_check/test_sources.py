import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from callboard.kernel.blas import Gemm
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


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_op_has_a_hash(backend: str) -> None:
    sources = op_sources(backend)
    assert len(sources) == len(ops_of(backend))
    assert all(len(value) == 16 for value in sources.values())
    assert len(set(sources.values())) > 1


def test_all_ops_are_ours_and_sorted() -> None:
    tags = [op.__module__.split(".")[1] for op in all_ops()]
    assert set(tags) == {"kernel"}
