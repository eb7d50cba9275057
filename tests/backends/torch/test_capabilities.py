"""What PyTorch's backend refuses is what its guide lists."""

import re
from pathlib import Path
from typing import Any

import pytest

from callboard.core import registry
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, info_of
from callboard.core.operand import Placeholder
from callboard.kernel.array import Cast
from callboard.kernel.blas import Gemm
from callboard.kernel.cub import Reduce
from callboard.kernel.rng import RngFillUniform
from callboard.kernel.solver import SparseLu
from callboard.kernel.sparse import CsrRef

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "contributing" / "write-a-backend.md"


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def why_not(kind: str, op: Any) -> str | None:
    return registry.backend(f"torch:{kind}").libraries()[info_of(type(op)).library].why_not(op)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    text = GUIDE.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_guide_lists_every_op_that_is_refused() -> None:
    for backend in ("cpu", "torch:cpu"):
        list(registry.backend(backend).libraries().values())  # imports all messages
    libraries = registry.backend("torch:cpu").libraries()
    refused = {
        tag
        for tag, op in OPS.items()
        if (cls := libraries.get(tag.partition(".")[0])) is not None
        and op.__module__.startswith("callboard.")
        and op not in cls.launch_table
    }
    conditional = {
        info_of(op).tag
        for cls in libraries.values()
        for op, launch in cls.launch_table.items()
        if launch.refuses is not None and not op.__module__.startswith("callboard.kernel.memory")
    }
    listed = [tag for what, _ in rows("What PyTorch's backend refuses") for tag in re.findall(r"`(\w+\.\w+)`", what)]
    assert sorted(listed) == sorted({*refused, *conditional})


def test_the_guide_lists_the_libraries_that_are_missing() -> None:
    here = set(registry.backend("torch:cpu").libraries())
    missing = set(registry.backend("cpu").libraries()) - here
    text = GUIDE.read_text("utf-8").partition("## What PyTorch's backend refuses\n")[2]
    told = text.partition("It has no ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", told)) == missing


def test_dtypes_that_a_kind_of_device_lacks_are_refused_by_name() -> None:
    single, double = (Gemm(a=array(d, 2, 2), b=array(d, 2, 2)) for d in ("f32", "f64"))
    assert why_not("mps", single) is None
    assert why_not("mps", double) == "a is f64[2, 2], and PyTorch has no f64 on mps"
    assert why_not("cpu", double) is None
    cast = Cast(src=array("f32", 3), dtype="f64")
    assert why_not("mps", cast) == "out would be f64[3], and PyTorch has no f64 on mps"


@pytest.mark.parametrize(
    "op, says",
    [
        (Reduce(x=array("f32", 4), operation="custom", init=0.0, python="a + b"), "PyTorch takes neither"),
        (RngFillUniform(out=array("f32", 4), kind="mt19937"), "there are philox, philox64"),
        (
            SparseLu(
                a=CsrRef(array("f32", 9), array("i32", 9), array("i32", 5001), (5000, 5000)), b=array("f32", 5000)
            ),
            "a is of order 5000: PyTorch has no sparse solver, and dense factors end at 4096",
        ),
    ],
    ids=["operator", "generator", "sparse"],
)
def test_what_is_refused_says_why(op: Any, says: str) -> None:
    assert says in str(why_not("cpu", op))


def test_the_backend_is_small() -> None:
    """One folder, within the size that decision 110 sets: what needs more is a flaw of the interface."""
    files = (ROOT / "src" / "callboard" / "backends" / "torch").rglob("*.py")
    assert sum(sum(1 for line in file.read_text("utf-8").splitlines() if line.strip()) for file in files) <= 4000
