"""Definitions of the forge: one only calls ``.ci/run``, the other publishes what ``scripts/release`` made."""

import re
import tomllib
from typing import Any

import pytest
import yaml
from check_jsonschema.cli import main as check  # the forge's schema comes with it
from click.testing import CliRunner

from devtools.release import FOLDER
from gpu_check.groups import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text("utf-8"))["jobs"]
    return found


@pytest.mark.parametrize("path", sorted(WORKFLOWS.iterdir()), ids=lambda path: path.name)
def test_the_forge_can_read_it(path: Any) -> None:
    result = CliRunner().invoke(check, ["--builtin-schema", "vendor.github-workflows", str(path)])
    assert result.exit_code == 0, result.output


def test_the_definition_only_calls_the_script() -> None:
    (job,) = jobs("ci.yml").values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (python,) = [step["with"] for step in job["steps"] if "with" in step]
    assert python["cache"] == "pip"
    assert (ROOT / python["cache-dependency-path"]).exists()


def test_only_what_the_check_built_is_published() -> None:
    build, publish = jobs("release.yml")["build"], jobs("release.yml")["publish"]
    assert publish["needs"] == "build"
    uses = {step["uses"].partition("@")[0]: step.get("with", {}) for step in build["steps"] if "uses" in step}
    dist = FOLDER.relative_to(ROOT) / "dist"
    assert uses["actions/attest-build-provenance"]["subject-path"] == f"{dist}/*"
    assert uses["actions/attest-sbom"]["sbom-path"] == f"{FOLDER.relative_to(ROOT)}/callboard.cdx.json"
    [upload] = [step["with"] for step in publish["steps"] if "pypi-publish" in step.get("uses", "")]
    assert upload == {"packages-dir": "release/dist"}
    assert not re.search("secrets\\.", (WORKFLOWS / "release.yml").read_text("utf-8"))


def test_the_tag_is_compared_with_the_line_of_the_version() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    version = tomllib.loads(text)["project"]["version"]
    assert re.search(rf'^version = "{re.escape(version)}".*$', text, re.MULTILINE)
    [command] = [step["run"] for step in jobs("release.yml")["build"]["steps"] if "grep" in step.get("run", "")]
    assert command == 'grep -qx "version = \\"${GITHUB_REF_NAME#v}\\".*" pyproject.toml'
