import ctypes
from pathlib import Path
from typing import Any

import pytest

from callboard.backends.cuda import kernels
from callboard.backends.cuda.blas.addresses import AddressArgs
from callboard.backends.cuda.blas.norms import NormArgs
from callboard.backends.cuda.blas.products import ProductArgs
from callboard.backends.cuda.fft.scaling import ScaleArgs
from callboard.backends.cuda.kernels import compiled
from callboard.backends.cuda.launching import CopyArgs, FillArgs, TransposeArgs
from callboard.backends.cuda.sparse import kernels as sparse
from callboard.backends.cuda.sparse_lt.finishing import FinishArgs
from callboard.backends.cuda.sparse_lt.kernels import StructuredArgs
from callboard.backends.cuda.tensor.arguments import ElementArgs, ReduceArgs
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.core.library import WouldBlock

SOURCES = (
    "memory",
    "blas",
    "fft",
    "sparse",
    "sparse_blocks-i64",
    "sparse_lists-i32",
    "sparse_lt",
    "sparse_lt_products",
    *(f"tensor_{part}-{name}" for part in ("elements", "reductions") for name in ("bf16", "f64", "c64", "i32")),
)


@pytest.fixture
def nvrtc() -> None:
    try:
        kernels.load_nvrtc()
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
    kept.write_bytes(b"kept")
    assert compiled(source, capability, tmp_path) == b"kept"


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    "source, structure",
    [
        ("memory", FillArgs),
        ("memory", CopyArgs),
        ("memory", TransposeArgs),
        ("blas", ProductArgs),
        ("blas", NormArgs),
        ("blas", AddressArgs),
        ("fft", ScaleArgs),
        ("sparse", sparse.SparseArgs),
        ("sparse_blocks", sparse.BlockArgs),
        ("sparse_lists", sparse.ListArgs),
        ("sparse_order", sparse.OrderArgs),
        ("sparse_products", sparse.ProductArgs),
        ("sparse_lt", StructuredArgs),
        ("sparse_lt_products", FinishArgs),
        ("tensor_elements", ElementArgs),
        ("tensor_reductions", ReduceArgs),
    ],
)
def test_argument_structures_have_the_size_of_the_kernels(source: str, structure: type[ctypes.Structure]) -> None:
    nvrtc = kernels.load_nvrtc()
    text = kernels._text(f"{source}.cu")
    name, size = structure.__name__, ctypes.sizeof(structure)
    text += f'\nstatic_assert(sizeof({name}) == {size}, "{name}");\n'.encode()
    for field, *_ in structure._fields_:
        own = getattr(structure, field).offset
        text += f'static_assert(__builtin_offsetof({name}, {field}) == {own}, "{field}");\n'.encode()
    assert kernels._compile(nvrtc, source, text, "sm_90", "CUBIN")


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
def test_a_refused_source_says_where() -> None:
    with pytest.raises(LibraryError, match=r"NVRTC refuses bad\.cu: bad\.cu\(1\): error") as caught:
        kernels._compile(kernels.load_nvrtc(), "bad", b"this is no C++", "sm_90", "CUBIN")
    assert caught.value.lib == "nvrtc"


@pytest.mark.slow
@pytest.mark.usefixtures("nvrtc")
def test_a_device_older_than_nvrtc_knows(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"compute capability 3\.5"):
        compiled("blas", (3, 5), tmp_path)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    assert kernels.cache_folder() == tmp_path / "cuda"
    monkeypatch.delenv("CALLBOARD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels.cache_folder() == tmp_path / "callboard" / "cuda"


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kernels._keep(tmp_path / "file" / "x.bin", b"image")
    kernels._keep(tmp_path / "new" / "x.bin", b"image")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["x.bin"]


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
