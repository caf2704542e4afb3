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

import jsonschema
import pytest
import yaml

from ematix_flow import __version__
from ematix_flow.serve.cli.init import FILES
from ematix_flow.serve.cli.main import flow as root

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """Give the schema of an object that has no other fields than these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, COUNT, TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 52}
QUANTITY = {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^\d+(m|Ki|Mi|Gi)?$"}}
USER = closed({"runAsNonRoot": TRUTH, "runAsUser": COUNT})
REFERENCE = closed({"name": TEXT, "key": TEXT, "optional": TRUTH}, "name", "key")
VARIABLE = closed({"name": TEXT, "value": TEXT, "valueFrom": closed({"secretKeyRef": REFERENCE})}, "name")
CONTAINER = closed(
    {
        "name": NAME,
        "image": TEXT,
        "command": {"type": "array", "items": TEXT},
        "env": {"type": "array", "items": VARIABLE},
        "resources": closed({"requests": QUANTITY, "limits": QUANTITY}),
    },
    "name",
)
POD = closed(
    {
        # A Job takes no other policies.
        "restartPolicy": {"enum": ["Never", "OnFailure"]},
        "terminationGracePeriodSeconds": COUNT,
        "securityContext": USER,
        "containers": {"type": "array", "items": CONTAINER, "minItems": 1},
    },
    "containers",
    "restartPolicy",
)
JOB = closed(
    {"backoffLimit": COUNT, "ttlSecondsAfterFinished": COUNT, "template": closed({"spec": POD}, "spec")}, "template"
)
CRON_JOB = closed(
    {
        "apiVersion": {"const": "batch/v1"},
        "kind": {"const": "CronJob"},
        "metadata": closed({"name": NAME}, "name"),
        "spec": closed(
            {
                "schedule": {"type": "string", "pattern": r"^\S+( \S+){4}$"},
                "concurrencyPolicy": {"enum": ["Allow", "Forbid", "Replace"]},
                "startingDeadlineSeconds": COUNT,
                "successfulJobsHistoryLimit": COUNT,
                "failedJobsHistoryLimit": COUNT,
                "jobTemplate": closed({"spec": JOB}, "spec"),
            },
            "schedule",
            "jobTemplate",
        ),
    },
    "apiVersion",
    "kind",
    "metadata",
    "spec",
)
"""The fields of a CronJob as the reference of the API has them, as far as the scaffold uses any; others are mistakes."""


@pytest.fixture
def scaffold(flow: Flow, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project that was just written; it is the working folder."""
    made = project / "shop"
    assert flow("init", str(made)).code == 0
    monkeypatch.chdir(made)
    return made


def parsed(words: list[str]) -> None:
    """Let the command line read a command without doing it; options that it does not have are an error."""
    assert words[0] == "flow"
    command = root.get_command(None, words[1])  # type: ignore[arg-type]
    assert command is not None, words
    command.make_context(words[1], words[2:])


def test_every_file_is_written_and_none_twice_unasked(flow: Flow, project: Path) -> None:
    said = flow("init", "shop")
    assert said.out.splitlines() == [f"shop/{name}" for name in FILES]
    assert all(Path("shop", name).is_file() for name in FILES)
    Path("shop/pipelines.py").write_text("mine", encoding="utf-8")
    said = flow("init", "shop")
    assert (said.code, said.out) == (1, "")
    assert "--force" in said.err
    assert Path("shop/pipelines.py").read_text(encoding="utf-8") == "mine"
    assert flow("init", "shop", "--force").code == 0
    assert "load_orders" in Path("shop/pipelines.py").read_text(encoding="utf-8")


def test_one_file_that_is_there_is_enough_to_write_none(flow: Flow, project: Path) -> None:
    Path("shop").mkdir()
    Path("shop/README.md").touch()
    assert flow("init", "shop").code == 1
    assert [file.name for file in Path("shop").iterdir()] == ["README.md"]


def test_no_word_of_the_scaffold_is_left_open(scaffold: Path) -> None:
    for name in FILES:
        assert not re.search(r"@[A-Z]+@", (scaffold / name).read_text(encoding="utf-8")), name


def test_every_command_of_the_readme_runs(flow: Flow, scaffold: Path) -> None:
    text = (scaffold / "README.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(commands) > 10
    for command in commands:
        words = shlex.split(command)
        parsed(words)
        said = flow(*words[1:])
        assert said.code == 0, f"{command}\n{said.out}\n{said.err}"
        if "runs list" in command:
            assert said.out.count("succeeded") == 2


def test_what_the_readme_names_is_there(scaffold: Path) -> None:
    for name in re.findall(r"`([\w./-]+\.(?:py|toml|service|yaml)|Dockerfile)`", (scaffold / "README.md").read_text()):
        assert (scaffold / name).exists(), name


def test_the_connections_are_those_of_the_file(flow: Flow, scaffold: Path) -> None:
    told = json.loads(flow("connections", "list", "--format", "json").out)
    assert {(one["name"], one["place"]) for one in told} == {
        ("landing", "./connections.toml"),
        ("warehouse", "./connections.toml"),
    }


def test_the_unit_starts_a_scheduler_in_the_folder(scaffold: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(scaffold / "flow.service")
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).is_absolute()
    assert service["WorkingDirectory"] == str(scaffold)
    assert words == ["scheduler", "--module", "pipelines", "--interval", "30"]
    parsed(["flow", *words])


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
    steps = [(word, rest) for word, _, rest in lines]
    assert {word for word, _ in steps} == {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "CMD"}
    assert steps[0][0] == "FROM"
    assert any(rest.endswith(f"ematix-flow-spark=={__version__}") for word, rest in steps if word == "RUN")
    words = [word for word, _ in steps]
    assert words.index("USER") > words.index("COPY")
    parsed(json.loads(dict(steps)["CMD"]))


def test_kubernetes_takes_the_cron_job(scaffold: Path) -> None:
    job = yaml.safe_load((scaffold / "cronjob.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(job, CRON_JOB)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    parsed(container["command"])
    with pytest.raises(jsonschema.ValidationError, match="concurency"):
        jsonschema.validate({**job, "spec": {**job["spec"], "concurency": 1}}, CRON_JOB)
