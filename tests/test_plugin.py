"""A library from another distribution (``examples/plugin``) is found by entry point, in this process and in hosts."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from callboard import cli
from callboard.cli.new_library import new_library
from devtools.template import TARGET, template_source

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "examples" / "plugin"
LIMIT = 100.0
DEVICES = [
    ("cpu", "thread"),
    ("cpu", "process"),
    pytest.param("cuda", "process", marks=pytest.mark.gpu),
]

pytestmark = pytest.mark.timeout(LIMIT + 20)

PROGRAM = """
import sys
import numpy as np
import callboard as cb
from callboard.core.mode import Blocking

with cb.sync.device(sys.argv[1], isolation=sys.argv[2]) as device:
    photo = np.random.default_rng(0).random((5, 7, 3), "f4")
    image = device.put(photo)
    expected = photo @ np.array([0.2126, 0.7152, 0.0722], "f4")
    np.testing.assert_allclose(device.image.grayscale(image).get(), expected, rtol=1e-6)

    from callboard_image import Grayscale
    from callboard_image.api import ImageApi

    out = device.empty((5, 7))
    device.library(ImageApi[Blocking]).grayscale(image, out=out)
    np.testing.assert_allclose(out.get(), expected, rtol=1e-6)
    assert cb.supports(Grayscale, "f32", device)
    assert "image" in dir(device)
    try:
        device.image.grayscale(out)
    except cb.ShapeError as e:
        assert "image.grayscale: image is f32[5, 7]; expected" in str(e), e
    else:
        raise AssertionError("a matrix was taken for an image")
print("done")
"""


def install(plugin: Path, folder: Path) -> None:
    """What an installer leaves: the package, and the metadata with its entry points."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    package = project["name"].replace("-", "_")
    shutil.copytree(plugin / package, folder / package)
    info = folder / f"{package}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items()) for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    install(PLUGIN, tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("device, isolation", DEVICES)
def test_a_plugin_is_a_library_like_any_other(installed: Path, device: str, isolation: str) -> None:
    paths = [str(installed), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, device, isolation],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_an_unknown_library_is_an_attribute_error_that_names_the_others() -> None:
    import callboard as cb

    with cb.sync.device("cpu", isolation="thread") as device:
        with pytest.raises(AttributeError, match=r"a device has no 'image'; its libraries are .*blas, blas_lt, .*fft"):
            _ = device.image
        assert not hasattr(device, "_image")


def test_the_generated_methods_of_the_plugin_are_up_to_date(installed: Path) -> None:
    command = [sys.executable, "-m", "callboard", "api", "--check", "callboard_image"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT / "src")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr


# -- callboard new-library ---------------------------------------------------------------------------------------------


def test_a_new_library_passes_its_tests_as_it_is(tmp_path: Path) -> None:
    folder = new_library("wave_forms", tmp_path)
    install(folder, tmp_path / "site")
    written = "".join(path.read_text("utf-8") for path in folder.rglob("*.*") if path.is_file())
    left = [name for name in ("callboard_image", "ImageApi", "device.image", "image.grayscale") if name in written]
    assert left == []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src")])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.parametrize(
    "name, says",
    [("Wave", "an identifier in lower case"), ("class", "an identifier in lower case"), ("blas", "of callboard")],
)
def test_a_name_that_cannot_be_a_library_is_refused(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        new_library(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new-library", "wave", "--into", str(tmp_path)]) == 0
    (written,) = tmp_path.iterdir()
    (written / "README.md").write_text("mine")
    assert cli.main(["new-library", "wave", "--into", str(tmp_path)]) == 2
    assert "exists; choose another name" in capsys.readouterr().err
    assert (written / "README.md").read_text() == "mine"


def test_the_template_is_the_example() -> None:
    assert TARGET.read_text("utf-8") == template_source(), "run: scripts/dev generate template"
