"""``lab`` beside this file is shared by the tests of serving; they need the extra ``serve`` and an HTTP client."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.serve import Tls

MISSING = [name for name in ("starlette", "uvicorn", "httpx") if importlib.util.find_spec(name) is None]

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import it from


class Unusable(pytest.Module):
    """A module whose tests are skipped, because it cannot be imported."""

    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(f"{', '.join(MISSING)} not installed: for the extras serve and test", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Unusable.from_parent(parent, path=module_path) if MISSING else None


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A certificate of 127.0.0.1 that signs itself."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=20)
    except (FileNotFoundError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no certificate can be made: {e}")
    return Tls(certificate, key)
