"""Finds the programs of the servers that tests start, and installs packages of the system where it may; it starts none of them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PACKAGES = {
    "PostgreSQL": "postgresql",
    "MariaDB": "mariadb-server",
    "RabbitMQ": "rabbitmq-server",
    "Chromium": "chromium",
}
COMMANDS = {
    "S3": "make setup",
    "axe-core": "make services",
    "Azurite": "make services",
    "fake-gcs-server": "make services",
}
"""Servers that the package manager of the system does not have -> the command that installs them."""
_BREW = {"PostgreSQL": "postgresql@17", "MariaDB": "mariadb", "RabbitMQ": "rabbitmq", "Chromium": "chromium"}
_OLDEST_POSTGRES = 13
_POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian asks this file before it starts a freshly installed server; exit code 101 means: do not."""


class MissingServerError(Exception):
    """A server that the tests need is not installed; the message has the command that installs it."""

    def __init__(self, *servers: str) -> None:
        missing = " and ".join(servers)
        super().__init__(f"not installed: {missing}. These tests are never skipped; run: {install_command(servers)}")


def postgres_bin() -> Path:
    """Return the folder with `initdb` and `postgres` of the newest PostgreSQL that is new enough."""
    versions = [(version, folder) for folder in _postgres_folders() if (version := _postgres_version(folder))]
    if not versions or max(versions)[0] < _OLDEST_POSTGRES:
        raise MissingServerError("PostgreSQL")
    return max(versions)[1]


def mariadb_programs() -> tuple[Path, list[str]]:
    """Return the server program of MariaDB or MySQL and the command that makes an empty data folder for it."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"])
    if server := shutil.which("mariadbd", path=search):
        install = shutil.which("mariadb-install-db", path=search) or "mariadb-install-db"
        return Path(server), [install, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
    if server := shutil.which("mysqld", path=search):
        return Path(server), [server, "--no-defaults", "--initialize-insecure"]
    raise MissingServerError("MariaDB")


def rabbitmq_server() -> Path:
    """Return the server program of RabbitMQ: Debian's wrapper on PATH would change the user."""
    folders = ["/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin"]
    program = shutil.which("rabbitmq-server", path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if program is None:
        raise MissingServerError("RabbitMQ")
    return Path(program)


def chromium() -> Path:
    """Return the browser that the tests of the web page drive."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None:
        raise MissingServerError("Chromium")
    return Path(program)


def missing() -> list[str]:
    """Return the names of the servers among the packages of the system that are not installed."""
    programs = {
        "PostgreSQL": postgres_bin,
        "MariaDB": mariadb_programs,
        "RabbitMQ": rabbitmq_server,
        "Chromium": chromium,
    }
    return [name for name, find in programs.items() if is_missing(find)]


def is_missing(find: Callable[[], object]) -> bool:
    """Return whether the function that finds a program does not find it."""
    try:
        find()
    except MissingServerError:
        return True
    return False


def install_command(servers: Sequence[str]) -> str:
    """Return the one command that installs the servers on this platform."""
    if all(name in COMMANDS for name in servers):
        return COMMANDS[servers[0]]
    installed = [name for name in servers if name in PACKAGES]
    if not installed:
        return "make services"
    if shutil.which("apt-get"):
        return "sudo apt-get install -y " + " ".join(PACKAGES[name] for name in installed)
    if shutil.which("brew"):
        return "brew install " + " ".join(_BREW[name] for name in installed)
    return "the package manager of this system, for " + " and ".join(installed)


def install_packages() -> None:
    """Install what is missing as root on a system with apt; otherwise raise with the command to run."""
    absent = missing()
    if not absent:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MissingServerError(*absent)
    installed_by_apt([PACKAGES[name] for name in absent])
    if still := missing():
        raise MissingServerError(*still)


def installed_by_apt(packages: Sequence[str]) -> None:
    """Install packages of Debian, whose servers do not start by themselves."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_service_start():
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
        subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=True, env=environment)


def _postgres_folders() -> list[Path]:
    folders = list(Path("/usr/lib/postgresql").glob("*/bin"))
    folders += Path("/opt/homebrew/opt").glob("postgresql@*/bin")
    on_path = shutil.which("initdb")
    return [*folders, Path(on_path).resolve().parent] if on_path else folders


def _postgres_version(folder: Path) -> int:
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return 0
    text = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"(\d+)", text)
    return int(match[1]) if match else 0


@contextlib.contextmanager
def _no_service_start() -> Iterator[None]:
    before = _POLICY.read_bytes() if _POLICY.exists() else None
    mode = _POLICY.stat().st_mode if before is not None else 0
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            _POLICY.unlink()
        else:
            _POLICY.write_bytes(before)
            _POLICY.chmod(mode)
