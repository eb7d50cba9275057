"""The extras of ``pyproject.toml``: the aggregates hold what their names say, and what is installed can be imported.

``scripts/release`` installs each of them into an environment of its own.
"""

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from devtools.extras import closure as closure_of
from devtools.extras import for_gpus, name_of
from devtools.release import NOT_FOR_USERS

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

WHEELS = {
    **dict.fromkeys(("cublaslt", "cufft", "curand", "cusolver", "cusparse", "nvrtc"), "cuda-toolkit"),
    **dict.fromkeys(("cuda-ipc", "cuda-managed", "graphs-conditional"), "cuda-bindings"),
    "cudnn": "nvidia-cudnn-cu{cuda}",
    "cutensor": "cutensor-cu{cuda}",
    "nccl": "nvidia-nccl-cu{cuda}",
    "cupti": "cupti-python",
    "nvml": "nvidia-ml-py",
    "nvtx-trace": "nvtx",
}
"""The distribution of each feature of the original; cuBLASLt is in cuBLAS."""

CORE = {"cudnn", "cufft", "curand", "cusparse", "cutensor", "cuda-managed"}
TRAINING = {*CORE, "cusolver", "cublaslt", "nvrtc"}
AGGREGATES = {
    "core-libs": CORE,
    "training-libs": TRAINING,
    "full-cuda": {*TRAINING, "nccl", "cuda-ipc", "graphs-conditional"},
    "observability-full": {"cupti", "nvml", "nvtx-trace"},
}
COMPONENTS = {"cublaslt": "cublas"}  # of cuda-toolkit, where they have another name

MODULES = {
    "cuda-bindings": "cuda.bindings",
    "cuda-cccl": "cuda.compute",
    "cuda-pathfinder": "cuda.pathfinder",
    "cupti-python": "cupti",
    "nccl4py": "nccl.bindings",
    "nvidia-cudnn-frontend": "cudnn",
    "nvidia-ml-py": "pynvml",
    "nvmath-python": "nvmath",
    "nvtx": "nvtx",
}
"""The module of each distribution that has one; the others are shared libraries."""


def options_of(requirement: str) -> list[str]:
    found = re.search(r"\[(.*?)\]", requirement)
    return found[1].split(",") if found else []


def extra_of(aggregate: str, cuda: str) -> str:
    return f"{aggregate.removesuffix('-cuda')}-cuda{cuda}"


def closure(extra: str) -> list[str]:
    return closure_of(EXTRAS, extra)


@pytest.mark.few(8)
@pytest.mark.parametrize("cuda", ["13", "12"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_an_aggregate_holds_what_the_original_holds(aggregate: str, cuda: str) -> None:
    held = {name_of(one): one for one in closure(extra_of(aggregate, cuda))}
    for feature in AGGREGATES[aggregate]:
        wheel = WHEELS[feature].format(cuda=cuda)
        assert wheel in held, feature
        if wheel == "cuda-toolkit":
            assert COMPONENTS.get(feature, feature) in options_of(held[wheel]), feature
            assert held[wheel].endswith(f"=={cuda}.*")


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.few(len(EXTRAS))
def test_an_extra_of_one_cuda_has_nothing_of_the_other(extra: str) -> None:
    found = re.search(r"(12|13)$", extra)
    other = {"12": "13", "13": "12"}.get(found[1] if found else "")
    assert [one for one in closure(extra) if other and re.search(rf"-cu{other}|sysctk{other}|=={other}\.\*", one)] == []
    twin = extra.removesuffix(found[1]) + str(other) if found else extra
    assert twin in EXTRAS, f"{extra} has no counterpart for the other CUDA"


@pytest.mark.parametrize("distribution", MODULES)
@pytest.mark.few(len(MODULES))
def test_a_package_that_is_installed_can_be_imported(distribution: str) -> None:
    assert distribution in {name_of(one) for extra in EXTRAS for one in closure(extra)}
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(MODULES[distribution])
    else:
        importlib.import_module(MODULES[distribution])


def test_each_package_of_the_aggregates_is_a_library_or_has_its_module() -> None:
    names = {name_of(one) for extra in AGGREGATES for cuda in ("12", "13") for one in closure(extra_of(extra, cuda))}
    libraries = {name for name in names if re.search(r"-cu1[23]$|^cuda-toolkit$", name)}
    assert names - libraries == MODULES.keys()


@pytest.mark.parametrize("extra", ["serve", "demo", "agents", "onnx", "index", "realtime", "ray"])
def test_an_extra_for_a_machine_without_a_gpu_names_nothing_for_one(extra: str) -> None:
    names = [name_of(one) for one in closure(extra)]
    assert for_gpus(names) == []
    assert "torch" not in names, "PyPI's wheels of it for Linux bring CUDA"


def test_the_features_matrix_has_each_extra_for_users() -> None:
    page = (Path(__file__).parent.parent / "docs" / "guides" / "features.md").read_text("utf-8")
    goals, _, aggregates = page.partition("\nAggregates")
    cells = [line.split("|")[2] for line in goals.splitlines() if line.startswith("|")]
    named = re.findall(r"`([\w-]+)`", "".join(cells)) + re.findall(r"^\| `([\w-]+)` \|", aggregates, re.MULTILINE)
    assert sorted(named) == sorted({extra for extra in EXTRAS if not extra.endswith("12")} - NOT_FOR_USERS)
