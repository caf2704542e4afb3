"""Installs the servers that tests start: packages, jars, and what Go builds, side by side; it starts none of them.

Run as a program it makes sure that all of them are there: `python -m tests.services.installed`.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.services.built import build_pubsub
from tests.services.emulators import build_gcs, install_node_packages
from tests.services.fetched import fetch_java_servers
from tests.services.programs import MissingServerError, install_packages


def install_all() -> None:
    """Install what is missing: a fresh machine waits for the slowest repository, not for one after the other."""
    with ThreadPoolExecutor() as pool:
        installed = [pool.submit(step) for step in (_packages, fetch_java_servers, _programs)]
    for step in installed:
        step.result()


def _packages() -> None:
    install_packages()
    install_node_packages()


def _programs() -> None:
    build_pubsub()
    build_gcs()


if __name__ == "__main__":
    try:
        install_all()
    except (MissingServerError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{error}\nthe servers of the tests need Java, Node with npm, and Go 1.21 or newer")
