"""`flow init`: what it writes runs as it is, and what it says to systemd, Docker and Kubernetes is understood there."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ematix_flow import __version__
from ematix_flow.serve.cli.commands.init import FILES
from ematix_flow.serve.cli.main import flow as root

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

pytestmark = pytest.mark.slow


TEXT, COUNT, TRUTH = r".+", 0, True
NAME, QUANTITY = r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", r"\d+(m|Ki|Mi|Gi)?"
SIZES = {"cpu": QUANTITY, "memory": QUANTITY}
VARIABLE = {
    "name!": TEXT,
    "value": TEXT,
    "valueFrom": {"secretKeyRef": {"name!": TEXT, "key!": TEXT, "optional": TRUTH}},
}
CONTAINER = {
    "name!": NAME,
    "image": TEXT,
    "command": [TEXT],
    "env": [VARIABLE],
    "resources": {"requests": SIZES, "limits": SIZES},
}
POD = {
    "restartPolicy!": "Never|OnFailure",  # a Job takes no other policies
    "terminationGracePeriodSeconds": COUNT,
    "securityContext": {"runAsNonRoot": TRUTH, "runAsUser": COUNT},
    "containers!": [CONTAINER],
}
CRON_JOB = {
    "apiVersion!": "batch/v1",
    "kind!": "CronJob",
    "metadata!": {"name!": NAME},
    "spec!": {
        "schedule!": r"\S+( \S+){4}",
        "concurrencyPolicy": "Allow|Forbid|Replace",
        "startingDeadlineSeconds": COUNT,
        "successfulJobsHistoryLimit": COUNT,
        "failedJobsHistoryLimit": COUNT,
        "jobTemplate!": {
            "spec!": {"backoffLimit": COUNT, "ttlSecondsAfterFinished": COUNT, "template!": {"spec!": POD}},
        },
    },
}
"""The fields of a CronJob as the reference of the API has them, as far as the scaffold uses any; `!` must be there."""


def mistakes(value: Any, schema: Any, at: str = "") -> list[str]:
    """Return the places where a value is not what its schema says."""
    if isinstance(schema, dict) and isinstance(value, dict):
        known = {name.rstrip("!"): one for name, one in schema.items()}
        missing = [f"{at}/{name[:-1]} is missing" for name in schema if name.endswith("!") and name[:-1] not in value]
        unknown = [f"{at}/{name} is unknown" for name in value if name not in known]
        return [
            *missing,
            *unknown,
            *(m for n in known if n in value for m in mistakes(value[n], known[n], f"{at}/{n}")),
        ]
    if isinstance(schema, list) and isinstance(value, list):
        return [m for number, one in enumerate(value) for m in mistakes(one, schema[0], f"{at}/{number}")]
    fits = type(value) is type(schema) and (not isinstance(schema, str) or re.fullmatch(schema, value) is not None)
    return [] if fits else [f"{at} is {value!r}"]


@pytest.fixture
def scaffold(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project that was just written; it is the working folder."""
    folder = project / "shop"
    assert flow("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


def commands_of(scaffold: Path) -> list[str]:
    """Return the commands of the README, in their order."""
    text = (scaffold / "README.md").read_text(encoding="utf-8")
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def parsed(arguments: list[str]) -> None:
    """Let the command line read a command without doing it; options that it does not have are an error."""
    assert arguments[0] == "flow"
    command = root.get_command(None, arguments[1])  # type: ignore[arg-type]
    assert command is not None, arguments
    command.make_context(arguments[1], arguments[2:])


def test_every_file_is_written_and_none_twice_unasked(flow: Flow, project: Path) -> None:
    result = flow("init", "shop")
    assert result.out.splitlines() == [f"shop/{name}" for name in FILES]
    assert all(Path("shop", name).is_file() for name in FILES)
    Path("shop/pipelines.py").write_text("mine", encoding="utf-8")
    result = flow("init", "shop")
    assert (result.code, result.out) == (1, "")
    assert "--force" in result.err
    assert Path("shop/pipelines.py").read_text(encoding="utf-8") == "mine"
    assert flow("init", "shop", "--force").code == 0
    assert "load_orders" in Path("shop/pipelines.py").read_text(encoding="utf-8")


def test_one_file_that_is_there_is_enough_to_write_none(flow: Flow, project: Path) -> None:
    Path("shop").mkdir()
    Path("shop/README.md").touch()
    assert flow("init", "shop").code == 1
    assert [file.name for file in Path("shop").iterdir()] == ["README.md"]


def test_a_folder_cannot_be_made_below_a_file(flow: Flow, project: Path) -> None:
    result = flow("init", "flows.py/shop")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("error: flows.py/shop")
    assert "hint: " in result.err


def test_no_word_of_the_scaffold_is_left_open(scaffold: Path) -> None:
    for name in FILES:
        assert not re.search(r"@[A-Z]+@", (scaffold / name).read_text(encoding="utf-8")), name


def test_every_command_of_the_readme_runs(flow: Flow, scaffold: Path) -> None:
    commands = commands_of(scaffold)
    assert len(commands) > 10
    for command in commands:
        arguments = shlex.split(command)
        parsed(arguments)
        result = flow(*arguments[1:])
        assert result.code == 0, f"{command}\n{result.out}\n{result.err}"
        if "runs list" in command:
            assert result.out.count("succeeded") == 2


def test_what_is_said_about_the_readme_is_what_stands_there(flow: Flow, project: Path) -> None:
    errors = flow("init", "shop").err
    first = commands_of(Path("shop"))[0]
    assert errors == f"go to shop and follow README.md, which begins with {first}.\n"


def test_the_sentences_of_the_readme_are_true(flow: Flow, scaffold: Path) -> None:
    text = (scaffold / "README.md").read_text(encoding="utf-8")
    for command in commands_of(scaffold)[:7]:
        assert flow(*shlex.split(command)[1:]).code == 0
    assert "Running a pipeline again loads nothing twice." in text
    for name in ("load_orders", "daily_sales"):
        again = json.loads(flow("run", name).out)
        assert (again["rows_inserted"], again["rows_updated"], again["rows_deleted"]) == (0, 0, 0), name
    for table in ("sales.orders", "sales.daily_sales"):
        assert f"`{table}`" in text
        assert table in flow("list").out
    assert "every quarter of an\nhour" in text
    slots = [line for line in flow("next", "--hours", "6").out.splitlines() if " load_orders " in line]
    assert len(slots) == 24
    assert "`~/.ematix-flow/run_log.db`" in text
    assert (Path.home() / ".ematix-flow" / "run_log.db").is_file()


def test_what_the_readme_names_is_there(scaffold: Path) -> None:
    for name in re.findall(r"`([\w./-]+\.(?:py|toml|service|yaml)|Dockerfile)`", (scaffold / "README.md").read_text()):
        assert (scaffold / name).exists(), name


def test_the_connections_are_those_of_the_file(flow: Flow, scaffold: Path) -> None:
    output = json.loads(flow("connections", "list", "--format", "json").out)
    assert {(one["name"], one["place"]) for one in output} == {
        ("landing", "./connections.toml"),
        ("warehouse", "./connections.toml"),
    }


def test_the_unit_starts_a_scheduler_in_the_folder(scaffold: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(scaffold / "flow.service")
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).is_absolute()
    assert service["WorkingDirectory"] == str(scaffold)
    assert arguments == ["scheduler", "--module", "pipelines", "--interval", "30"]
    parsed(["flow", *arguments])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(scaffold: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "flow.service"], capture_output=True, text=True, check=False, timeout=60
    )
    about = [line for line in done.stderr.splitlines() if "flow.service" in line]
    assert (done.returncode, about) == (0, [])


def test_the_image_installs_this_version_and_runs_the_scheduler(scaffold: Path) -> None:
    text = re.sub(r"\\\n", " ", (scaffold / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    steps = [(instruction, rest) for instruction, _, rest in lines]
    assert {instruction for instruction, _ in steps} == {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "CMD"}
    assert steps[0][0] == "FROM"
    assert any(
        rest.endswith(f"ematix-flow-spark=={__version__}") for instruction, rest in steps if instruction == "RUN"
    )
    instructions = [instruction for instruction, _ in steps]
    assert instructions.index("USER") > instructions.index("COPY")
    parsed(json.loads(dict(steps)["CMD"]))


def test_kubernetes_takes_the_cron_job(scaffold: Path) -> None:
    job = yaml.safe_load((scaffold / "cronjob.yaml").read_text(encoding="utf-8"))
    assert mistakes(job, CRON_JOB) == []
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    parsed(container["command"])
    wrong = {**job, "kind": "Cronjob", "spec": {**job["spec"], "concurency": "Allow", "startingDeadlineSeconds": "50"}}
    assert mistakes(wrong, CRON_JOB) == [
        "/kind is 'Cronjob'",
        "/spec/concurency is unknown",
        "/spec/startingDeadlineSeconds is '50'",
    ]
