"""The site and the release: pages, notebooks, workflows and versions that fit together.

``make docs`` builds the site and ``make release-check`` the release; both take longer than a test may.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import picaset
from tests import release_check

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "builder"))
import docstrings  # noqa: E402
import notebooks  # noqa: E402
import pages  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOT_IN_ALL = ("ray", "tests", "development")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def entries(nav: Any) -> list[str]:
    """Return the pages of a navigation, which is nested."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav if isinstance(nav, list) else nav.values()) for page in entries(part)]


def test_every_document_and_notebook_is_in_the_navigation():
    nav = entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    executed = [f"notebooks/{path.stem}.md" for path in notebooks.NOTEBOOKS]
    assert sorted(nav) == sorted([*documents, *executed, "changelog.md", "contributing.md"])


def test_every_public_name_is_in_the_reference():
    reference = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    assert set(re.findall(r"^::: picaset\.(\w+)$", reference, re.MULTILINE)) == set(picaset.__all__)


@pytest.mark.parametrize(
    ("page", "link", "place"),
    [
        ("clustering.md", "large_sets.md", "large_sets.md"),
        ("guides/cluster_tables.md", "../clustering.md", "../clustering.md"),
        ("guides/cluster_tables.md", "../notebooks/cluster_tables.py", "../notebooks/cluster_tables.md"),
        ("guides/add_an_operator.md", "../../CONTRIBUTING.md", "../contributing.md"),
        ("guides/add_an_operator.md", "../../tests/operators.py", "../tests/operators.py"),
        ("contributing.md", "docs/architecture.md", "architecture.md"),
        ("clustering.md", "../results/x.json", "results/x.json"),
    ],
)
def test_a_link_to_a_file_of_the_repository_points_to_its_place_on_the_site(page: str, link: str, place: str):
    assert pages.site_link(page, link) == place


def test_shapes_of_a_docstring_keep_their_columns():
    docstring = "Shapes:\n    elements  (B, N)  along ``dim``\n    returns   (B,)\n\nExample:\n    >>> 1\n    1\n"
    expected = (
        "**Shapes:**\n\n```text\nelements  (B, N)  along dim\nreturns   (B,)\n```\n\nExamples:\n    >>> 1\n    1\n"
    )
    assert docstrings.to_markdown(docstring) == expected


def test_names_in_a_docstring_become_links_if_they_are_public():
    assert docstrings.to_markdown(":class:`MeanPool`") == "[`MeanPool`][picaset.MeanPool]"
    assert docstrings.to_markdown(":class:`Reading`") == "`Reading`"


def test_equations_of_a_docstring_become_pictures():
    page = docstrings.to_markdown(".. math::  x = \\tfrac12, \\qquad y^2\n\nThen :math:`z`.")
    assert page.count("<svg") == page.count("</svg>") == 3
    assert re.findall('aria-label="(.*?)"', page) == ["x = \\tfrac12", "y^2", "z"]
    assert ".. math" not in page
    assert ":math:" not in page


@pytest.mark.as_installed
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_warnings_and_draws_pictures(path: Path):
    executed = notebooks.execute_notebook(path)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    page, *pictures = notebooks.to_markdown(executed, path.stem).values()
    assert len(pictures) >= 3
    assert all(picture[:4] == b"\x89PNG" for picture in pictures)
    assert page.startswith("# ")
    assert page.count("](" + path.stem) == len(pictures)


def test_the_first_five_guides_have_a_notebook():
    assert {path.stem for path in notebooks.NOTEBOOKS} == {
        "pool_in_my_model", "cluster_tables", "classify_bags", "find_odd_rows", "huge_sets"
    }  # fmt: skip


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_of_a_workflow_is_pinned_by_its_commit(path: Path):
    actions = [step["uses"] for step in steps_of(path) if "uses" in step]
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_the_workflows_run_what_must_pass_before_a_change_lands():
    commands = {
        step["run"].removesuffix(" PYTHON=python") for path in WORKFLOWS for step in steps_of(path) if "run" in step
    }
    required = re.findall(r"^make \w+$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert required == ["make test", "make docs", "make run"]
    assert set(required) <= commands


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_commands_of_a_workflow_are_targets_of_the_makefile(path: Path):
    commands = [step["run"] for step in steps_of(path) if "run" in step]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "make"
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)


def test_the_workflows_run_every_system_and_every_declared_python():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    declared = [name.split(" :: ")[-1] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == declared
    assert jobs["elsewhere"]["strategy"]["matrix"] == {"system": ["macos-latest", "windows-latest"], "python": declared}


def test_the_oldest_versions_that_are_tested_are_those_that_are_declared():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in NOT_IN_ALL}
    needed = [line for needs in (PROJECT["dependencies"], *extras.values()) for line in needs]
    declared = dict(line.split(">=") for line in needed if ">=" in line)
    assert {name.lower(): padded(version) for name, version in tested.items()} == {
        name.lower(): padded(version) for name, version in declared.items() if name != "torch"
    }


def padded(version: str) -> list[int]:
    numbers = [int(number) for number in version.split(".")]
    return numbers + [0] * (3 - len(numbers))


def test_package_changelog_and_citation_have_the_same_version():
    assert release_check.agreed_version() == picaset.__version__


def test_versions_that_disagree_are_refused(tmp_path, monkeypatch):
    (tmp_path / "picaset").mkdir()
    (tmp_path / "picaset/__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-18)\n")
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"versions must agree; got .*'CITATION.cff': '1.1.0'"):
        release_check.agreed_version()


def test_every_extra_is_used_by_the_check_of_the_release():
    assert {*release_check.USES_OF_EXTRAS, "tests", "development"} == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("command", "installed"),
    [
        ("pip install picaset", "pip install DIST/picaset.whl"),
        ("pip install 'picaset[all]'", "pip install DIST/picaset.whl[all]"),
        ("pip install picaset-extras", "pip install picaset-extras"),
        ("picaset cluster --example", "picaset cluster --example"),
    ],
)
def test_the_check_of_the_release_installs_the_wheel_by_its_path(command: str, installed: str):
    assert " ".join(release_check.install_by_path(shlex.split(command), Path("DIST/picaset.whl"))) == installed


def test_the_release_is_published_from_the_folder_that_was_checked():
    (release,) = (yaml.safe_load(path.read_text()) for path in WORKFLOWS if path.name == "release.yml")
    steps = release["jobs"]["build"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert [command for command in commands if command.startswith("make ")] == [
        'make release-check PYTHON=python TAG="$GITHUB_REF_NAME" OUT=dist'
    ]
    assert [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")] == ["dist"]


def test_a_folder_for_the_release_that_is_not_empty_is_refused(tmp_path):
    assert release_check.empty_folder(tmp_path / "dist") == (tmp_path / "dist").resolve()
    (tmp_path / "old.whl").touch()
    with pytest.raises(SystemExit, match=r"must be empty; remove it, since everything in it is published"):
        release_check.empty_folder(tmp_path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_of_a_workflow_ends_in_a_given_time(path: Path):
    assert all("timeout-minutes" in job for job in yaml.safe_load(path.read_text())["jobs"].values())
