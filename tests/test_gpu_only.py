"""The list of CUDA launches that ran on no stand-in."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import gpu_only
from tests.test_gpu_cases import NO_GPU

ROOT = Path(__file__).resolve().parents[1]

CONFTEST = """
from pathlib import Path
from tests import gpu_cases, gpu_only

def pytest_configure(config):
    config.pluginmanager.register(gpu_cases, "gpu-cases")
    config.pluginmanager.register(gpu_only.GpuOnly(config, Path(__file__).parent / "stand_ins"), "gpu-only")
"""

STAND_INS = """
import numpy as np
import pytest
from callboard.backends.cpu import CpuBackend
from callboard.core.errors import AccelError
from callboard.kernel.blas import Gemm, Gemv
from callboard.testing.session import LibrarySession

class StandIn(CpuBackend):
    name = "cuda-stand-in"

@pytest.mark.parametrize("i", range(3))
def test_gemm(i):
    with LibrarySession(StandIn()) as session:
        a = session.put(np.eye(2))
        session.submit(Gemm(a=a, b=a))

def test_what_is_refused_was_not_launched():
    with LibrarySession(StandIn()) as session:
        a = session.put(np.eye(2))
        with pytest.raises(AccelError):
            session.submit(Gemv(a=a, x=session.put(np.ones(3))))

@pytest.mark.slow
def test_slow():
    pass
"""

ELSEWHERE = """
import numpy as np
import pytest
from callboard.kernel.blas import Dot
from callboard.testing.session import LibrarySession

def test_on_the_cpu():
    with LibrarySession("cpu") as session:
        x = session.put(np.ones(2))
        session.submit(Dot(x=x, y=x))

@pytest.mark.gpu
def test_on_a_gpu():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (
        (
            "no_gpu.py",
            NO_GPU.replace(
                'registry.register("cuda"',
                'libraries = registry.backend("cuda").libraries()\n'
                'NoCuda.libraries = lambda self: libraries\nregistry.register("cuda"',
            ),
        ),
        ("conftest.py", CONFTEST),
        ("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    gpu: g\n    slow: s\n"),
        ("stand_ins/test_stand_ins.py", STAND_INS),
        ("test_elsewhere.py", ELSEWHERE),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def run(project: Path, *options: str) -> str:
    # Variables of pytest's are those of the run, or the xdist worker, that this is part of.
    environment = {k: v for k, v in os.environ.items() if k != "CALLBOARD_REQUIRE" and not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(project), str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")])
    )
    environment["PYTEST_PLUGINS"] = "no_gpu"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(told: str) -> set[str]:
    (line,) = [line for line in told.splitlines() if line.startswith("GPU only, not run here: ")]
    parts = line.partition("(")[2].partition(")")[0].split("; ")
    return {f"{part.partition(': ')[0]}.{op}" for part in parts for op in part.partition(": ")[2].split(", ")}


@pytest.mark.slow
def test_an_op_without_a_case_on_a_stand_in_is_listed(project: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    found = listed(run(project, "-n", "1"))
    assert found == set(gpu_only.cuda_ops()) - {"blas.gemm", "memory.upload", "memory.fill"}
    assert {"blas.trsm", "blas.dot", "blas.gemv"} <= found


def test_tests_that_were_not_selected_are_counted(project: Path) -> None:
    told = run(project, "-m", "not slow")
    assert "blas.trsm" in listed(told)
    assert told.count("(1 tests on stand-ins were not selected)") == 1


@pytest.mark.slow
def test_nothing_is_listed_where_only_some_were_asked_for(project: Path) -> None:
    assert "GPU only" not in run(project, "-k", "gemm or gpu")


@pytest.mark.parametrize(
    "arguments, keyword, whole",
    [
        (["tests"], "", True),
        ([str(ROOT)], "", True),
        (["tests/core", "tests/backends"], "", True),
        (["tests/backends/cuda"], "", True),
        (["tests/backends/cuda/blas"], "", False),
        (["tests/core"], "", False),
        (["tests"], "gemm", False),
    ],
)
def test_all_stand_ins_must_be_asked_for(arguments: list[str], keyword: str, whole: bool) -> None:
    config: Any = SimpleNamespace(
        args=arguments,
        invocation_params=SimpleNamespace(dir=ROOT),
        getoption={"keyword": keyword, "lf": False}.get,
    )
    assert gpu_only.GpuOnly(config)._is_whole() == whole


def test_it_counts_and_names_by_library() -> None:
    ops = ["blas.gemm", "blas.syr", "blas_lt.matmul", "fft.fft"]
    assert gpu_only.listing(ops, {"blas.gemm"}) == (
        "GPU only, not run here: 3 launches (blas: syr; blas_lt: matmul; fft: fft)"
    )
    assert gpu_only.listing(ops, ops) is None


def test_every_cuda_op_has_a_place() -> None:
    assert {tag.partition(".")[0] for tag in gpu_only.cuda_ops()} >= {"blas", "fft", "memory", "rng"}
