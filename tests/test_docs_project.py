"""Files for GitHub and for releases: they parse, call targets that exist, and agree on the version."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML_FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]


def read_yaml(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_file_is_a_yaml_mapping(path):
    assert isinstance(read_yaml(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_calls_only_targets_of_the_makefile(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split())
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)
    jobs = read_yaml(path)["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    called = {target for command in commands for target in re.findall(r"\bmake +([\w-]+)", command)}
    assert called <= targets
    assert called >= ({"test", "test-floor", "docs"} if path.name == "tests.yml" else set())


def test_workflow_tests_every_supported_python():
    supported = {f"3.{minor}" for minor in range(10, 14)}
    assert set(read_yaml(WORKFLOWS[-1])["jobs"]["test"]["strategy"]["matrix"]["python"]) == supported
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda p: p.name)
def test_issue_form_has_what_github_requires(path):
    form = read_yaml(path)
    assert {"name", "description", "body"} <= set(form)
    assert all(item["attributes"]["label"] for item in form["body"])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in Python 3.11")
def test_files_agree_on_the_version():
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert read_yaml(ROOT / "CITATION.cff")["version"] == version
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert version in headings[:2] and headings[0] in (version, "Unreleased")
