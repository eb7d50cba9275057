"""``callboard cutlass prebuild``: the template that a call of the product asks for, without a GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda.cutlass import ahead, nvcc
from callboard.backends.cuda.cutlass.grouped_text import grouped_text, sums_of
from callboard.backends.cuda.cutlass.templates import gemm_text
from callboard.backends.cuda.cutlass.tilings import WIDE, tilings_of, tilings_of_groups
from callboard.cli import main
from callboard.cli.serving.prebuild import product_of
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Gemm, GroupedGemm
from callboard.kernel.cutlass.api import CutlassApi

Tree = cb.EpilogueVisitorTree
ALL = ["bias", "gelu", "residual", "scale=row", "scale", "gate=silu", "quantize=i8"]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that were compiled, by a compiler that does nothing; a cache of the test."""
    found: list[str] = []

    def compiler(text: str, *_: Any) -> bytes:
        found.append(text)
        return b"binary"

    monkeypatch.setattr(nvcc, "toolchain", lambda: nvcc.Toolchain("nvcc", tmp_path, "1"))
    monkeypatch.setattr(nvcc, "_compiled", compiler)
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    return found


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def test_a_template_of_each_tiling_is_compiled_once(compiled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cutlass", "prebuild", "f16", "bias", "relu", "--dry-run"]) == 0
    assert "to compile for sm_90a" in capsys.readouterr().out
    assert compiled == []
    for says in ("compiled for sm_90a, 6 bytes", "in the cache"):
        assert main(["cutlass", "prebuild", "f16", "bias", "relu"]) == 0
        lines = [f"{says}: f16 @ f16 -> f16, {tiling}, bias relu" for tiling in WIDE]
        assert capsys.readouterr().out.splitlines() == lines
    assert len(compiled) == len(set(compiled)) == len(WIDE)


def test_groups_have_templates_for_few_rows_and_for_many(
    compiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cutlass", "prebuild", "bf16", "bias", "relu", "--groups"]) == 0
    few, many = tilings_of_groups(128, 1, 256), tilings_of_groups(512, 1, 256)
    assert capsys.readouterr().out.splitlines() == [
        f"{says}: bf16 @ bf16, groups of {rows} rows, {tiling}, bias relu"
        for rows, says, tiling in (
            (128, "compiled for sm_90a, 6 bytes", few[0]),
            (128, "compiled for sm_90a, 6 bytes", few[1]),
            (512, "compiled for sm_90a, 6 bytes", many[0]),
            (512, "in the cache", many[1]),  # it is among both
        )
    ]
    assert len(compiled) == len(set(compiled)) == 3
    for rows, tilings in ((100, few), (4096, many)):
        call = grouped_call(
            rows, epilogue=cb.EpilogueVisitorTree().bias().relu().nodes, inputs=(array("bf16", 4, 512),)
        )
        assert {grouped_text(call, tiling) for tiling in tilings} <= set(compiled)
    assert main(["cutlass", "prebuild", "f8_e4m3", "--groups"]) == 2
    assert "fp8 matrices need their inner axis adjacent" in capsys.readouterr().err
    assert main(["cutlass", "prebuild", "f8_e4m3", "--groups", "--transposed", "b"]) == 0


def grouped_call(rows: int, **settings: Any) -> GroupedGemm:
    return GroupedGemm(a=array("bf16", rows, 64), b=array("bf16", 4, 64, 512), offsets=array("i32", 5), **settings)


def test_sums_that_serve_every_tree_of_groups_are_a_product_of_f32(
    compiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tree = cb.EpilogueVisitorTree().bias().reduce("max", "row", "peaks")
    inputs = {"inputs": (array("bf16", 4, 512),), "reductions": (array("f32", 100),)}
    call = grouped_call(100, epilogue=tree.nodes, **inputs)
    assert main(["cutlass", "prebuild", "bf16", "--groups", "--out", "f32"]) == 0
    assert {grouped_text(sums_of(call), tiling) for tiling in tilings_of_groups(100, 4, 512)} <= set(compiled)


@pytest.mark.parametrize("gated, steps", [(True, ["gate=silu"]), (False, ["silu"])])
def test_experts_have_commands(compiled: list[str], gated: bool, steps: list[str]) -> None:
    """The templates of every product that ``cb.GroupedExperts`` sends, by the commands of docs/guides/moe.md."""
    sent: list[GroupedGemm] = []

    def submit(op: Any) -> Any:
        sent.append(op)
        return Placeholder(op.infer()["out"])

    class Ref(Placeholder):
        is_stale = False

    def put(x: Any) -> Any:
        return Ref(layout_of(DTYPES["i32" if x.dtype == np.int32 else "bf16"], x.shape))

    device: Any = SimpleNamespace(put=put, cutlass=CutlassApi(submit, put))
    up, down = np.zeros((4, 256, 512), np.float32), np.zeros((4, 512, 256), np.float32)
    experts = cb.GroupedExperts(device, up, down, activation="silu", gate=up if gated else None)
    for given in ([], steps):
        assert main(["cutlass", "prebuild", "bf16", *given, "--groups"]) == 0
    for rows in (16, 4096):
        offsets: Any = [0, rows // 2, rows, rows, rows]
        experts(put(np.zeros((rows, 256), np.float32)), offsets)
    assert len(sent) == (6 if gated else 4)
    for op in sent:
        rows, groups = op.a.shape[0], op.b.shape[0]
        for tiling in tilings_of_groups(rows, groups, op.b.shape[2]):
            assert grouped_text(op, tiling) in compiled


def test_it_is_the_template_of_a_call_of_any_extent_and_names() -> None:
    tree = cb.EpilogueVisitorTree().bias("shift").gelu().residual().scale("s", per="row").scale("t").gate("g", "silu")
    made = product_of("f16", ALL, None, "f32", "bf16", "b")
    call = Gemm(
        a=array("f16", 64, 128),
        b=Placeholder(layout_of(DTYPES["f16"], (128, 512), (1, 128))),
        c=array("f32", 64, 512),
        beta=1.0,
        epilogue=tree.quantize("i8").nodes,
        inputs=tuple(array("bf16", *shape) for shape in ((512,), (64, 512), (64,), (), (64, 512))),
        engine="cutlass",
    )
    for tiling in WIDE:
        assert gemm_text(made, made.problem(), tiling) == gemm_text(call, call.problem(), tiling)


@pytest.mark.parametrize(
    "given, factors",
    [
        (["i8", "scale=column", "quantize=i8"], {}),
        (["f32", "bias"], {"tf32": True}),
        (["f8_e4m3", "--scales", "block_2d"], {"scale_a": (64, 3), "scale_b": (3, 4)}),
        (["f8_e4m3", "--scales", "outer"], {"scale_a": (64,), "scale_b": (512,)}),
        (["bf16", "--long"], {}),
    ],
    ids=str,
)
def test_factors_of_other_kinds(
    compiled: list[str], capsys: pytest.CaptureFixture[str], given: list[str], factors: dict[str, Any]
) -> None:
    """What is compiled serves a call of the same kind."""
    assert main(["cutlass", "prebuild", *given, "--transposed", "b"]) == 0
    assert "compiled for sm_90a" in capsys.readouterr().out
    k = 8192 if "--long" in given else 384
    dtype = given[0]
    steps = {"scale": Tree().scale("s", per="column").quantize("i8"), "bias": Tree().bias()}
    tree = next((steps[word] for word in steps for step in given[1:] if step.startswith(word)), None)
    shapes = {name: array("f32", *shape) for name, shape in factors.items() if name != "tf32"}
    call = Gemm(
        a=array(dtype, 64, k),
        b=Placeholder(layout_of(DTYPES[dtype], (k, 512), (1, k))),
        epilogue=tree.nodes if tree else (),
        inputs=(array("f32", 512),) if tree else (),
        tf32=factors.get("tf32"),
        engine="cutlass",
        **shapes,
    )
    tilings = tilings_of(call, call.problem())
    assert {gemm_text(call, call.problem(), tiling) for tiling in tilings} == set(compiled)
    assert ("--long" in given) == any(tiling.splits for tiling in tilings)


@pytest.mark.parametrize(
    "given, says",
    [
        (["f16", "softplus"], "there is no step 'softplus'; the steps are bias"),
        (["f16", "bias=diagonal"], "'diagonal'"),
        (["f16", "quantize=f64"], "a value is rounded to one of"),
        (["f16", "--scales", "outer"], "only fp8 factors are scaled"),
        (["f8_e4m3"], "fp8 factors need their inner axis adjacent"),
    ],
)
def test_what_cannot_be_compiled_is_named(given: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cutlass", "prebuild", *given]) == 2
    assert says in capsys.readouterr().err


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> nvcc.Toolchain:
        raise cb.BackendUnavailable("CUTLASS's templates need nvcc, which is not on PATH")

    monkeypatch.setattr(nvcc, "toolchain", missing)
    assert main(["cutlass", "prebuild", "f16", "bias", "--dry-run"]) == 0
    assert "to compile" in capsys.readouterr().out
    assert main(["cutlass", "prebuild", "f16", "bias"]) == 2
    assert "callboard cutlass: CUTLASS's templates need nvcc, which is not on PATH" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nvcc_compiles_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Forty seconds of an idle core for each of two tilings."""
    pytest.importorskip("cutlass_library", reason="the extra cutlass is not installed")
    nvcc.toolchain.cache_clear()
    try:
        nvcc.toolchain()
    except cb.BackendUnavailable as e:
        pytest.skip(str(e))
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ahead, "tilings_of", lambda *_: (WIDE[0], WIDE[-1]))
    assert main(["cutlass", "prebuild", "f16", "bias", "relu"]) == 0
    assert capsys.readouterr().out.startswith("compiled for sm_90a")
    assert main(["cutlass", "prebuild", "f16", "bias", "relu"]) == 0
    assert capsys.readouterr().out.startswith("in the cache")


def test_steps_with_numbers_are_those_of_the_methods(compiled: list[str]) -> None:
    made = product_of("f16", ["bias", "gelu", "residual", "clamp=-4:4", "scale=0.5", "gelu=none"])
    tree = Tree().bias("bias0").gelu().residual("residual2").clamp(-4, 4).scale(0.5).gelu("none")
    assert made.epilogue == tree.nodes
    assert main(["cutlass", "prebuild", "f16", "bias", "clamp=-1e3:inf", "--dry-run"]) == 0
    assert compiled == []


def test_a_tree_is_compiled_from_python(compiled: list[str]) -> None:
    tree = Tree().sigmoid() * Tree() + Tree.row("rows")
    told = ahead.compile_ahead(product_of("bf16", tree), False)
    assert len(told) == len(compiled) == len(WIDE)
    assert product_of("bf16", Tree()).epilogue == ()


@pytest.mark.parametrize(
    "steps, why",
    [
        (["quantize=i9"], "dtype 'i9' is not supported"),
        (["clamp=3"], "step 'clamp=3': '' is no number"),
        (["clamp=3:1"], "low must not exceed high"),
        (["scale=half"], "step 'scale=half': 'half' is no number"),
        (["gelu=tanh"], "there is no step 'gelu=tanh'"),
        (["--groups", "--long"], "--long goes not with --groups"),
    ],
)
def test_what_cannot_be_built_is_one_line(capsys: pytest.CaptureFixture[str], steps: list[str], why: str) -> None:
    assert main(["cutlass", "prebuild", "f16", *steps, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("given", [["i8"], ["f8_e4m3", "bias", "--scales", "block_2d"]])
def test_factors_that_must_be_transposed_name_the_option(
    compiled: list[str], capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert main(["cutlass", "prebuild", *given, "--dry-run"]) == 2
    assert f"pass --transposed b for {given[0]}" in capsys.readouterr().err
    assert main(["cutlass", "prebuild", *given, "--transposed", "b", "--dry-run"]) == 0
