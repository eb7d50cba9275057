"""Templates of CUTLASS without a GPU: their text, when there is none, the compiler's words, the cache."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import callboard as cb
from callboard.backends.cuda import compiling
from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.rules import refuses
from callboard.backends.cuda.cutlass.templates import Call, gemm_text, why_no_template
from callboard.backends.cuda.cutlass.templates.call import FIELDS
from callboard.backends.cuda.cutlass.templates.scales import scale_step, scales_of
from callboard.backends.cuda.cutlass.text import epilogue_text
from callboard.backends.cuda.cutlass.tilings import WIDE, Tiling, tilings_of
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Explain, Gemm
from callboard.kernel.cutlass.epilogue import QUANTIZED, UNARY

Tree = cb.EpilogueVisitorTree


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def turned(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape, (1, shape[0])))


def message(tree: Any = None, *inputs: Placeholder, dtype: str = "f16", n: int = 512, **settings: Any) -> Gemm:
    nodes = () if tree is None else tree.nodes
    factors = {"a": array(dtype, 256, 128), "b": array(dtype, 128, n)} | settings
    return Gemm(**factors, epilogue=nodes, inputs=inputs, engine="cutlass")


WHOLE = message(
    Tree().bias().gelu().residual().scale("s", per="row").scale("t").quantize("i8"),
    array("f16", 512),
    array("f16", 256, 512),
    array("f32", 256),
    array("f32"),
    c=array("f16", 256, 512),
    beta=1.0,
)


def blocks(rows: int, columns: int) -> dict[str, Placeholder]:
    """Factors of fp8, and scales of so many rows of ``a`` and columns of ``b``."""
    shapes = (256 // rows, 2), (2, 256 // columns)
    scales = {f"scale_{name}": array("f32", *shape) for name, shape in zip("ab", shapes, strict=True)}
    return {"a": array("f8_e4m3", 256, 256), "b": turned("f8_e4m3", 256, 256), **scales}


NARROW: dict[str, Gemm] = {
    "fp8, blocks": message(Tree().bias(), array("f32", 256), **blocks(1, 128)),
    "fp8, blocks of a": message(**blocks(128, 1)),
    "fp8, rows and columns": message(
        a=array("f8_e4m3", 256, 256),
        b=turned("f8_e4m3", 256, 256),
        scale_a=array("f32", 256),
        scale_b=array("f32", 256),
    ),
    "tf32": message(a=array("f32", 256, 256), b=turned("f32", 256, 256), tf32=True),
    "i8": message(a=array("i8", 256, 256), b=turned("i8", 256, 256)),
    "i8, rounded": message(Tree().scale(0.5).quantize("i8"), a=array("i8", 256, 256), b=turned("i8", 256, 256)),
    "bf16, shared": message(a=array("bf16", 256, 16384), b=array("bf16", 16384, 256)),
}
"""A product for each kind of factors."""


FIRST = WIDE[0]
ODD = layout_of(DTYPES["f16"], (256, 512), (516, 1))


@pytest.fixture
def no_toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler that is a script of the test, and folders without headers."""
    script = tmp_path / "nvcc"
    tools = nvcc.Toolchain(str(script), tmp_path, "1")
    monkeypatch.setattr(nvcc, "toolchain", lambda: tools)
    return script


def put(script: Path, *lines: str) -> None:
    script.write_text("\n".join(["#!/bin/sh", *lines]))
    script.chmod(0o755)


def text_of(op: Gemm, tiling: Tiling = FIRST) -> str:
    return gemm_text(op, op.problem(), tiling)


def test_the_text_has_every_array_and_step_of_the_tree() -> None:
    text = text_of(WHOLE)
    for leaf in ("Sm90AccFetch", "Sm90SrcFetch", "Sm90RowBroadcast", "Sm90ColBroadcast", "Matrix<cutlass::half_t>"):
        assert f"fusion::{leaf}" in text or f"    {leaf}" in text
    assert "Sm90ScalarBroadcast" in text
    assert "in1[i]" in text
    assert "to_i8" in text
    assert text_of(message(Tree().relu())) != text


def test_extents_are_no_part_of_the_text() -> None:
    assert len({text_of(one) for one in (message(), message(n=1024))}) == 1


def test_every_tiling_has_a_text_of_its_own_and_its_order_of_tiles_is_no_part() -> None:
    assert len({text_of(message(), tiling) for tiling in WIDE}) == len(WIDE)
    assert text_of(message(), FIRST._replace(swizzle=8, raster=2)) == text_of(message())


def test_the_first_matrix_of_a_tree_takes_the_place_of_an_addend() -> None:
    """Its loads run ahead of the epilogue, and need no memory of their own beside the result's."""
    matrices = array("f16", 256, 512), array("f32", 256, 512)
    text = text_of(message(Tree().bias().gate("g", "silu").residual("r"), array("f16", 512), *matrices))
    assert "using ElementC = cutlass::half_t;" in text
    assert "(const cutlass::half_t*)p.inputs[1], c," in text
    assert "cute::get<0>(c) = p.rows[1];" in text
    assert "Matrix<float>" in text
    assert "Matrix<cutlass::half_t>" not in text
    wide = text_of(message(Tree().residual("r"), array("f64", 256, 512)))  # TMA has no such dtype
    assert "using ElementC = void;" in wide
    assert "Sm90AuxLoad<0, void, double" in wide


def first_text(name: str) -> str:
    """The text of a product of NARROW, with the first of its tilings."""
    op = NARROW[name]
    return text_of(op, tilings_of(op, op.problem())[0])


@pytest.mark.parametrize(
    "name, has",
    [
        ("fp8, blocks", ("Sm90BlockwiseScaleConfig<", "1, 128, 128, cute::GMMA::Major::MN, cute::GMMA::Major::K>")),
        ("fp8, blocks", ("CooperativeFP8BlockScaledAccum>", "(const float*)p.scale_b, layout_of_scale_b(p)}")),
        ("fp8, blocks of a", ("128, 1, 128, cute::GMMA::Major::K, cute::GMMA::Major::MN>",)),
        (
            "fp8, rows and columns",
            ("p.alpha * acc[i] * scale_a[i] * scale_b[i]", "Sm90ColBroadcast<0, TileOfBlock, float"),
        ),
        ("tf32", ("using ElementA = float;", "PersistentScheduler")),
        ("i8", ("16, int32_t, TileOfBlock", "p.alpha == 1.f ? acc[i]", "callboard::Epilogue, ElementD, int32_t,")),
        ("i8, rounded", ("16, int32_t, TileOfBlock", "callboard::Epilogue, ElementD, float,", "(A)to_i8(")),
        ("bf16, shared", ("StreamKScheduler", "scheduler.splits = p.splits;")),
    ],
)
def test_factors_have_their_own_text(name: str, has: tuple[str, ...]) -> None:
    text = first_text(name)
    for words in has:
        assert words in text
    assert ("StreamK" in text) == ("shared" in name)
    assert ("Blockwise" in text) == ("blocks" in name)


def test_few_tiles_with_a_long_inner_axis_are_shared() -> None:
    """By as many blocks as the GPU runs at once; not where there are tiles enough, or little to share."""
    op = NARROW["bf16, shared"]
    found = tilings_of(op, op.problem())
    assert [one.splits for one in found] == [16, 1, *(0 for _ in WIDE)]
    assert str(found[0]).endswith("cooperative, 16 splits")
    assert str(found[1]).endswith("cooperative, stream-K")
    assert text_of(op, found[0]) == text_of(op, found[1]) != text_of(op, found[2])
    for m, k in ((256, 1024), (8192, 16384)):
        one = message(a=array("bf16", m, k), b=array("bf16", k, 256))
        assert tilings_of(one, one.problem()) == WIDE


def test_a_tile_has_no_fewer_rows_than_a_scale() -> None:
    for name, rows in (("fp8, blocks", {64, 128}), ("fp8, blocks of a", {128})):
        assert {one.rows for one in tilings_of(NARROW[name], NARROW[name].problem())} == rows


def test_steps_of_scales() -> None:
    """Blocks of one row are ordered by rows, those of 128 by the inner axis, padded to 16 bytes, as for cuBLASLt."""
    stored = {"scale_a": ((256, 5), (1, 256)), "scale_b": ((5, 2), (1, 8))}
    fields = {name: Placeholder(layout_of(DTYPES["f32"], *one)) for name, one in stored.items()}
    factors = {"a": array("f8_e4m3", 256, 600), "b": turned("f8_e4m3", 600, 256)}
    assert [scale_step(one) for one in scales_of(message(**factors, **fields))] == [256, 8]
    one = Placeholder(layout_of(DTYPES["f32"], (250, 1)))
    other = Placeholder(layout_of(DTYPES["f32"], (1, 2)))
    factors = {"a": array("f8_e4m3", 250, 80), "b": turned("f8_e4m3", 80, 256)}
    assert next(scale_step(x) for x in scales_of(message(**factors, scale_a=one, scale_b=other))) == 252


def test_the_fields_of_a_call_lie_as_the_text_says(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    names = [name for name, *_ in Call._fields_]
    checks = [f'static_assert(offsetof(Call, {name}) == {getattr(Call, name).offset}, "{name}");' for name in names]
    checks.append(f'static_assert(sizeof(Call) == {ctypes.sizeof(Call)}, "size");')
    source = tmp_path / "call.cpp"
    source.write_text("\n".join(["#include <cstddef>", FIELDS, *checks]))
    subprocess.run([compiler, "-fsyntax-only", source], check=True, timeout=60)


def test_approximate_functions_are_for_results_of_two_bytes() -> None:
    for dtype, approximate in (("f16", True), ("f32", False)):
        assert ("rcp.approx" in text_of(message(Tree().silu(), out_dtype=dtype))) is approximate


@pytest.mark.parametrize(
    "op, why",
    [
        (message(dtype="f64"), "a is f64 and b is f64; its templates have f16, bf16, f8_e4m3, f32, i8"),
        (message(dtype="f32"), "pass tf32=True, or leave engine out"),
        (message(dtype="f32", tf32=True), "f32 factors need their inner axis adjacent: a row-major"),
        (message(dtype="i8"), "i8 factors need their inner axis adjacent"),
        (message(out_dtype="i32"), "out is i32; its templates have f16, bf16, f8_e4m3, f32, i8"),
        (message(n=12), "must be adjacent and start at multiples of 16 bytes"),
        (message(dtype="f8_e4m3"), "fp8 factors need their inner axis adjacent"),
        (message(Tree().reduce("sum", "row", "s"), reductions=(array("f32", 256),)), "has reductions"),
        (
            message(Tree().residual("r"), Placeholder(ODD)),
            "its rows must start at multiples of 16 bytes: pass dev.copy",
        ),
    ],
)
def test_there_is_no_template_for_a_reason(op: Gemm, why: str) -> None:
    assert why in (why_no_template(op, op.problem()) or "")


@pytest.mark.parametrize("engine", ["auto", "vendor", "cutlass"])
def test_arrays_of_a_device_are_judged_without_their_values(engine: Any) -> None:
    """What no engine has is refused in the application, from refs; here of the CPU, and with CUDA's rules."""
    tree = Tree().bias().relu()
    with cb.sync.device("cpu") as dev:
        a, b = dev.zeros((256, 256), "f8_e4m3"), dev.zeros((256, 256), "f8_e4m3").T
        scales = {"scale_a": dev.zeros((2, 256), "f32").T, "scale_b": dev.zeros((2, 4), "f32")[:, :2].T}
        message = {"epilogue": tree.nodes, "inputs": (dev.zeros(256, "f32"),), "engine": engine}
        assert refuses(Gemm(a=a, b=b, **scales, **message)) is None
        assert refuses(Explain(a=a, b=b, **scales, **message)) is None
        far = {**scales, "scale_a": dev.zeros((256, 2), "f32")}
        assert "scale_a is" in (refuses(Gemm(a=a, b=b, **far, **message)) or "")
        x = dev.zeros((256, 256), "f32")
        why = refuses(Gemm(a=x, b=x, engine=engine, tf32=True))
        assert why is None if engine != "cutlass" else "f32 factors need their inner axis adjacent" in str(why)


def test_a_binary_is_compiled_once_and_found_again(no_toolchain: Path, tmp_path: Path) -> None:
    cache, runs = KernelCache(tmp_path / "cache"), tmp_path / "runs"
    put(no_toolchain, f"echo run >> {runs}", 'while [ "$1" != "-o" ]; do shift; done', 'printf binary > "$2"')
    assert not nvcc.is_built("text", "90a", cache)
    assert [nvcc.built("text", "90a", cache) for _ in range(2)] == [b"binary"] * 2
    assert nvcc.is_built("text", "90a", cache)
    assert not nvcc.is_built("another", "90a", cache)
    assert not nvcc.is_built("text", "100a", cache)
    assert runs.read_text().split() == ["run"]


def test_the_compilers_first_error_is_told(no_toolchain: Path, tmp_path: Path) -> None:
    put(no_toolchain, "echo 'note: first' >&2", "echo 'kernel.cu(7): error: no such type' >&2", "exit 2")
    with pytest.raises(LibraryError, match=r"nvcc refuses the kernel: kernel\.cu\(7\): error: no such type"):
        nvcc.built("text", "90a", KernelCache(tmp_path / "cache"))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    nvcc.toolchain.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"pip install \"callboard\[cutlass\]\""):
        nvcc.toolchain()
    assert not nvcc.is_built("text", "90a")


def test_every_binary_is_a_library_of_its_own(tmp_path: Path) -> None:
    """The loader knows what it has loaded by the path."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = """
import sys
from pathlib import Path
from callboard.backends.cuda.cutlass import nvcc
images = [Path(name).read_bytes() for name in sys.argv[1:]]
found = [nvcc.library_of(image) for image in (*images, *images)]
print([library.answer() for library in found], found[0] is found[2])
"""
    paths = []
    for number in (3, 4):
        source, target = tmp_path / f"{number}.c", tmp_path / f"{number}.so"
        source.write_text(f"int answer(void) {{ return {number}; }}")
        subprocess.run([compiler, "-shared", "-fPIC", source, "-o", target], check=True, timeout=60)
        paths.append(str(target))
    told = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.split("\n")[0] == "[3, 4, 3, 4] True"


@pytest.mark.leaves_nothing
def test_a_loaded_binary_is_not_taken_for_an_arena_that_was_left(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, target = tmp_path / "5.c", tmp_path / "5.so"
    source.write_text("int answer(void) { return 5; }")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", target], check=True, timeout=60)
    assert nvcc.library_of(target.read_bytes()).answer() == 5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_nvrtc_takes_a_generated_epilogue(dtype: str) -> None:
    """Every function and rounding, reductions for rows and columns."""
    try:
        nvrtc = compiling.load_nvrtc()
    except BackendUnavailable as e:
        pytest.skip(str(e))
    tree = Tree().bias("m", per="row").scale("t").reduce("max", "row", "r0").reduce("mean", "column", "r1")
    for name in UNARY:
        tree = tree.apply(name)
    for name in QUANTIZED:
        tree = (tree.quantize(name) / 2.0).clamp(-3, float("inf"))
    held = DTYPES[dtype]
    inputs = {"m": DTYPES["bf16"], "t": DTYPES["f16"]}
    text = epilogue_text(tree.nodes, held, held, DTYPES["f8_e4m3"], DTYPES["f16"], inputs, grouped=True)
    assert compiling.compile_now(nvrtc, compiling.Job("epilogue.cu", text.encode(), "sm_90", "CUBIN")).image


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NARROW)
def test_nvcc_takes_the_factors(tmp_path: Path, name: str) -> None:
    """A minute of an idle core for each."""
    pytest.importorskip("cutlass_library", reason="the extra cutlass is not installed")
    nvcc.toolchain.cache_clear()
    try:
        nvcc.toolchain()
    except BackendUnavailable as e:
        pytest.skip(str(e))
    assert nvcc.built(first_text(name), "90a", KernelCache(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nvcc_takes_the_whole_template(tmp_path: Path) -> None:
    """Forty seconds of an idle core: an addend, all kinds of arrays, an i8 result."""
    pytest.importorskip("cutlass_library", reason="the extra cutlass is not installed")
    nvcc.toolchain.cache_clear()
    try:
        nvcc.toolchain()
    except BackendUnavailable as e:
        pytest.skip(str(e))
    code = nvcc.library_of(nvcc.built(text_of(WHOLE), "90a", KernelCache(tmp_path)))
    assert code.callboard_launch
    assert code.callboard_workspace
