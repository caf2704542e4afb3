"""Which code travels to executors: the user's modules and what stands beside them; neither packages nor this product."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ematix_flow.run.spark.ship import _named_by_content, _zip

SOURCE = Path(__file__).resolve().parents[2] / "src"
PRINT_USER_FILES = (
    "from ematix_flow.run.spark.ship import user_files; import json; print(json.dumps(sorted(user_files())))"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with modules, a package with data, and names of the standard library."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "plain").mkdir()
    files = {
        "flows.py": "import shop.rates\n" + PRINT_USER_FILES + "\n",
        "helper.py": "x = 1\n",
        "turtle.py": "broken = True\n",
        "shop/__init__.py": "",
        "shop/rates.py": "",
        "shop/rates.json": "{}",
        "shop/__main__.py": PRINT_USER_FILES + "\n",
        "plain/notes.py": "",
        "data.csv": "id\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["flows.py"], ["-m", "flows"], ["-m", "shop"]])
def test_modules_of_the_user_travel_and_names_of_the_standard_library_do_not(
    arguments: list[str], project: Path
) -> None:
    completed = subprocess.run(
        [sys.executable, *arguments], cwd=project, capture_output=True, text=True, check=False, env=_environment(project),
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    files = json.loads(completed.stdout.splitlines()[-1])
    assert {"helper.py", "shop/__init__.py", "shop/rates.py"} <= set(files)
    assert "flows.py" in files
    assert not {"turtle.py", "data.csv", "plain/notes.py"} & set(files)
    assert not [name for name in files if name.startswith(("ematix_flow", "pyspark", "errors", "types", "run/"))]
    if arguments != ["-m", "shop"]:
        assert "shop/rates.json" in files


@pytest.mark.slow
def test_the_command_brings_nothing_of_this_product_under_other_names(project: Path) -> None:
    (project / "asks.py").write_text(PRINT_USER_FILES + "\n")
    completed = subprocess.run(
        [sys.executable, "-m", "ematix_flow", "list", "--module", "asks"], cwd=project,
        capture_output=True, text=True, check=False, env=_environment(project),
    )  # fmt: skip
    output = completed.stdout + completed.stderr
    files = json.loads(next(line for line in output.splitlines() if line.startswith("[")))
    assert set(files) == {"asks.py", "flows.py", "helper.py", "shop/__init__.py", "shop/__main__.py", "shop/rates.py"}


def test_modules_are_imported_from_a_zip_with_and_without_their_byte_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("value = 7\n")
    (tmp_path / "broken.py").write_text("def :\n")
    created = _zip(tmp_path / "made.zip", {"mine.py": tmp_path / "mine.py", "broken.py": tmp_path / "broken.py"})
    with zipfile.ZipFile(created) as archive:
        assert sorted(archive.namelist()) == ["broken.py", "mine.py", "mine.pyc"]
    program = "import mine; print(mine.value, mine.__file__.endswith('mine.pyc'))"
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(created)}
    )
    assert completed.stdout.strip() == "7 True", completed.stderr


def test_what_is_sent_is_named_by_its_bytes(tmp_path: Path) -> None:
    names = set()
    for number, content in enumerate((b"one", b"two", b"one")):
        file = tmp_path / str(number) / "code.zip"
        file.parent.mkdir()
        file.write_bytes(content)
        sent = _named_by_content(file)
        assert sent.read_bytes() == content
        names.add(sent.name)
    assert len(names) == 2


def _environment(project: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(SOURCE), "HOME": str(project)}
