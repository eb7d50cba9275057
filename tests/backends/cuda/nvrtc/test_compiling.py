"""Compilation, which needs no GPU: NVRTC from its wheel."""

import ctypes
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.backends.cuda import compiling
from callboard.backends.cuda.compiling import Job, compiled, load_nvrtc
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.module.images import Images
from callboard.backends.cuda.nvrtc.linking import form_of, load_nvjitlink
from callboard.backends.cuda.nvrtc.programs import Programs
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.core.library import WouldBlock
from callboard.kernel.module.image import image_of
from callboard.kernel.nvrtc.source import Source, source_of

TEMPLATE = """
#include "factor.h"
template<typename T> __global__ void axpy(const T *x, T *y, T a) { y[threadIdx.x] += FACTOR * a * x[threadIdx.x]; }
extern "C" __global__ void plain(float *x) { x[threadIdx.x] = 1; }
"""


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path / "cache"))
    try:
        return load_nvrtc()
    except BackendUnavailable as e:
        pytest.skip(f"NVRTC is not installed: {e}")


class Loader:
    """A driver as far as modules go.

    Attributes:
        images: That were loaded.
        unloaded: How many modules were unloaded.
    """

    def __init__(self) -> None:
        self.images: list[bytes] = []
        self.unloaded = 0

    def module_load_data(self, out: Any, image: bytes) -> None:
        self.images.append(image)
        out._obj.value = len(self.images)

    def module_get_function(self, out: Any, module: ctypes.c_void_p, name: bytes) -> None:
        assert name in self.images[(module.value or 0) - 1]
        out._obj.value = 0x100 * (module.value or 0) + len(name)

    def module_unload(self, module: int) -> None:
        self.unloaded += 1


@pytest.fixture
def programs(nvrtc: Any) -> Any:
    made = Programs(Loader(), (9, 0), lambda: True)  # type: ignore[arg-type]
    yield made
    made.close()


def job(text: str, **fields: Any) -> Job:
    return Job("user.cu", text.encode(), "sm_90a", "CUBIN", **fields)


def test_headers_templates_and_the_names_in_the_binary(nvrtc: Any, tmp_path: Path) -> None:
    names = ("axpy<float>", "axpy<double>", "plain")
    made = compiled(
        nvrtc, job(TEMPLATE, headers=(("factor.h", "#define FACTOR 2\n"),), names=names), KernelCache(tmp_path)
    )
    assert made.lowered == {
        "axpy<float>": "_Z4axpyIfEvPKT_PS0_S0_",
        "axpy<double>": "_Z4axpyIdEvPKT_PS0_S0_",
        "plain": "plain",
    }
    assert all(name.encode() in made.image for name in made.lowered.values())


def test_a_refused_source_says_which_line_of_which_file(programs: Programs) -> None:
    source = source_of("\n\n__global__ void step(float *x) { x[0] = undefined; }", title="step.cu")
    with pytest.raises(LibraryError, match=r'step\.cu\(3\): error: identifier "undefined" is undefined'):
        programs.function(source, "step")


def test_a_header_of_the_user_is_part_of_the_key(nvrtc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is found in a folder, and one that another one includes."""
    made: list[Job] = []
    real = compiling.compile_now

    def counted(nvrtc: Any, job: Job) -> Any:
        made.append(job)
        return real(nvrtc, job)

    monkeypatch.setattr(compiling, "compile_now", counted)
    folder, cache = tmp_path / "include", KernelCache(tmp_path / "kept")
    (folder / "deep").mkdir(parents=True)
    (folder / "outer.h").write_text('#include "deep/middle.h"\n')
    (folder / "deep" / "middle.h").write_text('#include "inner.h"\n')
    inner = folder / "deep" / "inner.h"
    inner.write_text("#define N 1\n")
    asked = job('#include <outer.h>\nextern "C" __global__ void f(int *x) { *x = N; }', include_paths=(str(folder),))
    first = compiled(nvrtc, asked, cache)
    assert compiled(nvrtc, asked, cache) == first
    assert len(made) == 1
    inner.write_text("#define N 2\n")
    assert compiled(nvrtc, asked, cache).image != first.image
    assert len(made) == 2


def test_what_cannot_be_told_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file whose name a macro says may change unseen."""

    class Nvrtc:
        def nvrtcVersion(self) -> tuple[int, int, int]:  # noqa: N802 -- the binding's name
            return 0, 13, 0

    monkeypatch.setattr(compiling, "compile_now", lambda nvrtc, job: compiling.Compiled(b"image", "CUBIN", {}, ""))
    compiled(
        Nvrtc(), job("#define H <a.h>\n#include H\n", include_paths=(str(tmp_path),)), KernelCache(tmp_path / "kept")
    )
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "other",
    [
        {"options": ("--std=c++20",)},
        {"headers": (("a.h", "2"),)},
        {"names": ("f",)},
        {"text": b"other"},
        {"architecture": "sm_80"},
        {"form": "PTX"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_the_key_has_all_that_matters(other: dict[str, Any]) -> None:
    class Nvrtc:
        version = (0, 13, 0)

        def nvrtcVersion(self) -> tuple[int, int, int]:  # noqa: N802 -- the binding's name
            return self.version

    base = job("text", headers=(("a.h", "1"),))
    nvrtc = Nvrtc()
    assert compiling._name(nvrtc, base) == compiling._name(nvrtc, msgspec.structs.replace(base))
    assert compiling._name(nvrtc, base) != compiling._name(nvrtc, msgspec.structs.replace(base, **other))
    before = compiling._name(nvrtc, base)
    nvrtc.version = (0, 13, 1)
    assert compiling._name(nvrtc, base) != before


def test_a_thread_that_may_not_wait_finds_the_compiler_at_work(nvrtc: Any) -> None:
    patient = False
    loader = Loader()
    programs = Programs(loader, (9, 0), lambda: patient)  # type: ignore[arg-type]
    sources = [Source(f'extern "C" __global__ void f(int *x) {{ *x = {n}; }}') for n in range(4)]
    for source in sources:
        with pytest.raises(WouldBlock):
            programs.function(source, "f")
    assert len(programs._compiling) == 4  # all of them
    patient = True
    assert len({programs.function(source, "f").function for source in sources}) == 4
    patient = False
    assert programs.function(sources[0], "f").users == 2  # loaded
    assert len(loader.images) == 4
    programs.close()
    assert loader.unloaded == 4


def test_a_module_is_unloaded_behind_its_last_user(programs: Programs) -> None:
    loader: Any = programs._modules._driver
    source = Source('extern "C" __global__ void f(int *x) { *x = 3; }')
    first, second = programs.function(source, "f"), programs.function(source, "f")
    assert first is second
    first.release()
    assert loader.unloaded == 0
    second.release()
    assert loader.unloaded == 1
    assert programs.function(source, "f") is not first


def test_a_program_is_linked_with_optimisation_across_functions(programs: Programs) -> None:
    linker()
    source = source_of('extern "C" __global__ void f(int *x) { *x = 3; }', lto=True)
    assert programs.function(source, "f").function
    assert form_of(programs.compiled(source, "f").image) == "cubin"
    assert form_of(programs.compiled(source, form="ltoir").image) == "ltoir"
    assert form_of(programs.compiled(source, form="ptx").image) == "ptx"


def test_binaries_are_linked_to_one(nvrtc: Any, programs: Programs, tmp_path: Path) -> None:
    linker()
    part = source_of("__device__ int three() { return 3; }", options=("-rdc=true",), lto=True)
    whole = source_of('extern __device__ int three(); extern "C" __global__ void f(int *x) { *x = three(); }', lto=True)
    parts = [programs.compiled(source, form="ltoir").image for source in (part, whole)]
    file = tmp_path / "whole.ltoir"
    file.write_bytes(parts[1])
    loader = Loader()
    images = Images(loader, (9, 0), lambda: True)  # type: ignore[arg-type]
    both = image_of(parts[0]), image_of(file)
    assert images.function(both, (), "f").function
    assert form_of(loader.images[0]) == "cubin"
    with pytest.raises(LibraryError, match=r"nvJitLink takes no options .*--no-such-option"):
        images.linked(both, ("--no-such-option",))
    with pytest.raises(LibraryError, match=r"nvJitLink refuses whole\.ltoir: .*three"):
        images.linked(both[1:], ())
    images.close()
    assert loader.unloaded == 1


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large.cubin"
    file.write_bytes(b"\x7fELF" + bytes(100_000))
    image = image_of(file)
    assert not image.data
    images = Images(Loader(), (9, 0), lambda: True)  # type: ignore[arg-type]
    file.write_bytes(b"\x7fELF" + bytes(100_001))
    with pytest.raises(LibraryError, match=r"large\.cubin has changed since it was loaded; load it again"):
        images.function((image,), (), "f")
    file.unlink()
    with pytest.raises(LibraryError, match="cannot be read"):
        images.function((image,), (), "f")


def linker() -> None:
    try:
        load_nvjitlink()
    except BackendUnavailable as e:
        pytest.skip(f"nvJitLink is not installed: {e}")
