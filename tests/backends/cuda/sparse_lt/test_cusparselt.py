"""Behaviour verified for one version on one GPU is relied on nowhere else."""

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.backends.cuda.sparse_lt.cusparselt import KNOWN, CusparseLt
from callboard.core.errors import UnsupportedOp


@pytest.mark.parametrize(
    "version, capability, known", [(*KNOWN, True), ((0, 9), KNOWN[1], False), (KNOWN[0], (12, 0), False)]
)
def test_another_version_or_gpu_is_refused(version: Any, capability: Any, known: bool) -> None:
    library = SimpleNamespace(get_property=version.__getitem__, cuSPARSELtError=RuntimeError, init=lambda: 1)
    device: Any = SimpleNamespace(driver=None, info=SimpleNamespace(compute_capability=capability))
    lt = CusparseLt(device, library)  # type: ignore[arg-type]
    if known:
        lt.check_known("sparse_lt.matmul", "this", "leave it out")
        return
    with pytest.raises(UnsupportedOp, match=r"sparse_lt.matmul: this is not known of cuSPARSELt .*; leave it out"):
        lt.check_known("sparse_lt.matmul", "this", "leave it out")
