"""``lab`` beside this file is shared by the tests of serving; they need the extra ``serve`` and an HTTP client."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MISSING = [name for name in ("starlette", "uvicorn", "httpx") if importlib.util.find_spec(name) is None]

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import it from


class Unusable(pytest.Module):
    """A module whose tests are skipped, because it cannot be imported."""

    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(f"{', '.join(MISSING)} not installed: for the extras serve and test", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Unusable.from_parent(parent, path=module_path) if MISSING else None
