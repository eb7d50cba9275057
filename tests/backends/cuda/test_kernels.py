import ctypes
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.backends.cuda import compiling, kernels
from callboard.backends.cuda.array.arguments import PickArgs, RangeArgs
from callboard.backends.cuda.blas.addresses import AddressArgs
from callboard.backends.cuda.blas.norms import NormArgs
from callboard.backends.cuda.blas.products import ProductArgs
from callboard.backends.cuda.compiling import Job
from callboard.backends.cuda.cub.arguments import CubArgs
from callboard.backends.cuda.cutlass.convolutions.patches import PatchArgs
from callboard.backends.cuda.cutlass.grouping import GroupedArgs
from callboard.backends.cuda.fft.scaling import ScaleArgs
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.kernels import compiled
from callboard.backends.cuda.launching import CopyArgs, FillArgs, TransposeArgs
from callboard.backends.cuda.sparse import kernels as sparse
from callboard.backends.cuda.sparse_lt.finishing import FinishArgs
from callboard.backends.cuda.sparse_lt.kernels import StructuredArgs
from callboard.backends.cuda.tensor.arguments import ElementArgs, ReduceArgs
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.core.library import WouldBlock
from callboard.kernel.nvrtc.source import Compiled

SOURCES = (
    "array",
    "array_cast-FROM=C64-TO=F16",
    "memory",
    "blas",
    "cutlass",
    "fft",
    "graph",
    "sparse",
    "sparse_blocks-i64",
    "sparse_lists-i32",
    "sparse_rows-i32",
    "sparse_rows-i64",
    "sparse_lt",
    "sparse_lt_products",
    *(f"tensor_{part}-{name}" for part in ("elements", "reductions") for name in ("bf16", "f64", "c64", "i32")),
)


GENERATED = ("expressions.cuh", "expressions_complex.cuh", "reductions.cuh")
"""What the texts of backends/cuda/elementwise include, all at most."""
BY_NVCC = {"cutlass_rows.cuh"}
"""Part of the texts of CUTLASS's templates."""


@pytest.fixture
def nvrtc() -> None:
    try:
        compiling.load_nvrtc()
    except BackendUnavailable as e:
        pytest.skip(f"NVRTC is not installed: {e}")


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("capability, start", [((9, 0), b"\x7fELF"), ((12, 3), b"//")])
def test_sources_compile(tmp_path: Path, source: str, capability: tuple[int, int], start: bytes) -> None:
    image = compiled(source, capability, tmp_path)
    assert image.startswith(start)  # a binary; PTX for a device that NVRTC does not know yet
    (kept,) = tmp_path.iterdir()
    KernelCache(tmp_path).keep(kept.name, msgspec.msgpack.encode(Compiled(b"kept", "CUBIN", {}, "")))
    assert compiled(source, capability, tmp_path) == b"kept"


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    "source, structure",
    [
        ("array", PickArgs),
        ("array", RangeArgs),
        ("array_cast-FROM=F32-TO=I8", CopyArgs),
        ("memory", FillArgs),
        ("memory", CopyArgs),
        ("memory", TransposeArgs),
        ("blas", ProductArgs),
        ("blas", NormArgs),
        ("blas", AddressArgs),
        ("cub", CubArgs),
        ("cutlass", GroupedArgs),
        ("cutlass", PatchArgs),
        ("fft", ScaleArgs),
        ("sparse", sparse.SparseArgs),
        ("sparse_blocks", sparse.BlockArgs),
        ("sparse_lists", sparse.ListArgs),
        ("sparse_order", sparse.OrderArgs),
        ("sparse_products", sparse.ProductArgs),
        ("sparse_rows", sparse.RowArgs),
        ("sparse_lt", StructuredArgs),
        ("sparse_lt_products", FinishArgs),
        ("tensor_elements", ElementArgs),
        ("tensor_reductions", ReduceArgs),
    ],
)
def test_argument_structures_have_the_size_of_the_kernels(source: str, structure: type[ctypes.Structure]) -> None:
    text = kernels.source_text(source)
    name, size = structure.__name__, ctypes.sizeof(structure)
    text += f'\nstatic_assert(sizeof({name}) == {size}, "{name}");\n'.encode()
    for field, *_ in structure._fields_:
        own = getattr(structure, field).offset
        # What offsetof is to this compiler; before CUDA 13.1 it has neither that nor __builtin_offsetof.
        text += f'static_assert(__INTADDR__(&(({name}*)0)->{field}) == {own}, "{field}");\n'.encode()
    assert compiling.compile_now(compiling.load_nvrtc(), Job(f"{source}.cu", text, "sm_90", "CUBIN")).image


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
def test_a_refused_source_says_where() -> None:
    with pytest.raises(LibraryError, match=r"NVRTC refuses bad\.cu: bad\.cu\(1\): error") as caught:
        compiling.compile_now(compiling.load_nvrtc(), Job("bad.cu", b"this is no C++", "sm_90", "CUBIN"))
    assert caught.value.lib == "nvrtc"


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
def test_a_device_older_than_nvrtc_knows(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"compute capability 3\.5"):
        compiled("blas", (3, 5), tmp_path)


class Compiler:
    """NVRTC as far as the cache asks it."""

    def __getattr__(self, name: str) -> Any:
        answers = {"nvrtcVersion": (13, 0), "nvrtcGetNumSupportedArchs": (1,), "nvrtcGetSupportedArchs": ([90],)}
        return lambda: (0, *answers[name])


def test_a_binary_is_kept_for_its_source_with_all_that_it_includes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[bytes] = []

    def compiles(nvrtc: Any, job: Job) -> Compiled:
        texts.append(job.text)
        return Compiled(b"image", job.form, {}, "")

    monkeypatch.setattr(kernels, "load_nvrtc", Compiler)
    monkeypatch.setattr(compiling, "compile_now", compiles)
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / "user.cu").write_text('#include "outer.cuh"\nkernel\n')
    (data / "outer.cuh").write_text('#include "inner.cuh"\nouter\n')
    (data / "inner.cuh").write_text("first\n")
    for _ in range(2):
        compiled("user", (9, 0), tmp_path / "cache")
    assert texts == [b"first\n\nouter\n\nkernel\n"]
    (data / "inner.cuh").write_text("second\n")
    compiled("user", (9, 0), tmp_path / "cache")
    assert texts[1:] == [b"second\n\nouter\n\nkernel\n"]


def test_what_is_written_into_is_nobody_elses() -> None:
    """Python keeps one object for each bytes of length 0 and 1: an empty log would be written into its b" "."""

    class Nvrtc:
        nvrtcGetProgramLogSize = staticmethod(lambda program: (0, 1))  # noqa: N815 - likewise

        @staticmethod
        def nvrtcGetProgramLog(program: object, log: bytes) -> tuple[int]:  # noqa: N802 - NVRTC's name
            assert all(log is not bytes([value]) for value in range(256))
            ctypes.memset(log, 0, 1)
            return (0,)

    assert compiling._bytes(Nvrtc(), None, "ProgramLog") == b"\0"
    assert bytes([32]) == b" ".join([b"", b""])


def device_code() -> dict[str, str]:
    data = resources.files("callboard.backends.cuda") / "data"
    return {f.name: f.read_text("utf-8") for f in data.iterdir() if f.name.endswith((".cu", ".cuh"))}


def test_a_source_includes_each_header_once() -> None:
    """The text of a header is put in its place each time, and nothing may be defined twice."""
    code = device_code()

    def included(name: str) -> list[str]:
        found = re.findall(r'^#include "(.+)"$', code[name], re.MULTILINE)
        return [name, *(inner for header in found for inner in included(header))]

    every = {name: included(name) for name in code if name.endswith(".cu")}
    every |= {"generated": [inner for name in GENERATED for inner in included(name)]}
    assert {name for names in every.values() for name in names} == set(code) - BY_NVCC  # none is left over
    assert {name: names for name, names in every.items() if len(set(names)) < len(names)} == {}


def test_conversions_stand_in_one_header() -> None:
    code = device_code()
    for text in ("cvt.", "struct Half", "struct Brain", "+ 0x7fff"):
        assert {name for name in code if text in code[name]} == {"numbers.cuh"}, text


def test_who_may_not_be_held_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does he wait for another thread that loads something else."""

    class Driver:
        def module_load_data(self, out: Any, image: bytes) -> None:
            out._obj.value = 7

        def module_get_function(self, out: Any, module: int, name: bytes) -> None:
            assert module == 7
            out._obj.value = len(name)

    monkeypatch.setattr(kernels, "compiled", lambda source, capability: b"image")
    patient = False
    own = kernels.Kernels(Driver(), (9, 0), lambda: patient)  # type: ignore[arg-type]
    with pytest.raises(WouldBlock, match=r"blas\.cu"):
        own.get("blas", "first")
    patient = True
    assert own.get("blas", "first") == 5
    patient = False
    with own._lock:
        assert own.get("blas", "another") == 7
    with pytest.raises(WouldBlock):
        own.get("memory", "first")
