"""`flow init`: writes a small project that runs as it is; its text is in the files of the scaffold."""

from __future__ import annotations

import shutil
import sys
from importlib.resources import files
from pathlib import Path

import click

from ematix_flow.errors import RunError
from ematix_flow.serve.cli.common.errors import DONE, FAILED, print_error_text
from ematix_flow.serve.cli.common.options import common_options
from ematix_flow.serve.cli.common.output import emit, talk
from ematix_flow.serve.cli.common.state import user_name

FILES = {
    "pipelines.py": "pipelines.py.txt",
    "connections.toml": "connections.toml.txt",
    ".ematix-flow.toml": "ematix-flow.toml.txt",
    "data/orders/monday.csv": "orders.csv.txt",
    "Dockerfile": "Dockerfile.txt",
    "flow.service": "flow.service.txt",
    "cronjob.yaml": "cronjob.yaml.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md.txt",
}
"""What is written, and the file of the scaffold that it comes from."""


@click.command()
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Write over files that are there.")
@common_options
def init(path: Path, force: bool) -> int:
    """Write a project that runs as it is: pipelines, connections, and what cron, systemd, Docker and Kubernetes need."""
    try:
        return _init(path, force=force)
    except OSError as error:
        message = f"{error.filename or path} could not be written: {error.strerror or error}"
        hint = "flow init makes the folder and those above it; none of them may be a file."
        raise RunError(message, hint=hint) from error


def _init(path: Path, *, force: bool) -> int:
    there = [name for name in FILES if (path / name).exists()]
    if there and not force:
        print_error_text(f"{path} has {', '.join(there)} already", "--force writes over what is there.")
        return FAILED
    placeholders = _placeholders(path)
    for name, template in FILES.items():
        text = files("ematix_flow.serve.scaffold").joinpath(template).read_text(encoding="utf-8")
        for placeholder, value in placeholders.items():
            text = text.replace(placeholder, value)
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    emit("\n".join(str(path / name) for name in FILES))
    talk(f"go to {path} and follow README.md, which begins with {_first_command(path / 'README.md')}.")
    return DONE


def _first_command(readme: Path) -> str:
    """Return the first command that a file has for the shell."""
    return readme.read_text(encoding="utf-8").partition("```sh\n")[2].partition("\n")[0]


def _placeholders(path: Path) -> dict[str, str]:
    """Return what differs from project to project."""
    from ematix_flow import __version__

    sibling = Path(sys.executable).with_name("flow")
    program = sibling if sibling.exists() else Path(shutil.which("flow") or "/usr/local/bin/flow")
    return {
        "@VERSION@": __version__,
        # In a unit a percent sign begins a specifier of systemd.
        "@FOLDER@": str(path.absolute()).replace("%", "%%"),
        "@FLOW@": str(program.absolute()).replace("%", "%%"),
        "@USER@": user_name("root"),
    }
