"""Which project a process works for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.connect.config.project_name import VARIABLE, ProjectName, current_project
from ematix_flow.errors import DeclareError


def write(text: str) -> str:
    Path(".ematix-flow.toml").write_text(text, encoding="utf-8")
    return str(Path.cwd().resolve())


def test_without_a_project_file_there_is_no_project() -> None:
    assert current_project() == ProjectName()
    assert (current_project().digest, current_project().legacy) == ("", ())


def test_the_folder_of_the_project_file_is_the_project_until_it_has_a_name(tmp_path: Path) -> None:
    folder = write('[project]\nmodule = "pipelines"\n')
    project = current_project()
    assert (project.name, project.explicit, project.in_slots, project.legacy) == (folder, False, "", ("",))
    write('[project]\nname = "shop"\n')
    named = current_project()
    assert (named.name, named.explicit, named.in_slots, named.legacy) == ("shop", True, "shop", (folder, ""))
    assert len({project.digest, named.digest, ""}) == 3


def test_a_link_to_a_folder_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path / "link")
    assert current_project().name == folder


def test_the_variable_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write('[project]\nname = "shop"\n')
    monkeypatch.setenv(VARIABLE, "staging")
    assert current_project() == ProjectName("staging", explicit=True)
    monkeypatch.setenv(VARIABLE, "/srv/shop/")
    assert current_project() == ProjectName("/srv/shop"), "a folder, as a scheduler tells it to its workers"
    monkeypatch.setenv(VARIABLE, "-")
    assert current_project() == ProjectName()
    monkeypatch.setenv(VARIABLE, "")
    assert current_project().name == "shop"


@pytest.mark.parametrize("project", [ProjectName(), ProjectName("/srv/shop"), ProjectName("shop", explicit=True)])
def test_another_process_is_told_the_same_project(project: ProjectName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, project.as_variable)
    assert current_project() == project


@pytest.mark.parametrize("name", ['""', '" "', "7", '"-"', '"/srv/shop"', '"a\\nb"', f'"{"x" * 101}"'])
def test_what_is_no_name_is_refused_with_its_line(name: str) -> None:
    write(f'[project]\nmodule = "m"\nname = {name}\n')
    with pytest.raises(DeclareError, match=r"\[project\] name") as refused:
        current_project()
    assert str(refused.value.origin) == "./.ematix-flow.toml:3"


def test_a_project_file_that_cannot_be_read_is_no_other_project() -> None:
    write("[project\n")
    with pytest.raises(DeclareError, match="no valid TOML"):
        current_project()
