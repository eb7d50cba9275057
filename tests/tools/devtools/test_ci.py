"""The forge's definition does nothing by itself: it calls ``.ci/run``."""

import yaml

from gpu_check.groups import ROOT


def test_the_definition_only_calls_the_script() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (python,) = [step["with"] for step in job["steps"] if "with" in step]
    assert python["cache"] == "pip"
    assert (ROOT / python["cache-dependency-path"]).exists()
