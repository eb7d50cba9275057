"""``lab`` beside this file is shared by the tests of serving; they need the extra ``serve`` and an HTTP client."""

import sys
from pathlib import Path

import pytest

for _package in ("starlette", "uvicorn", "httpx"):
    pytest.importorskip(_package, reason="for the extras serve and test")

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import it from
