"""Finds and installs the stand-ins of Google's and Microsoft's buckets, which no Python package and no Debian one has.

They lie in the environment of the tests, and go with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services.built import go_program
from tests.services.programs import MissingServerError, installed_by_apt, is_missing

HOME = Path(sys.prefix) / "services"
AZURITE = "azurite@3.37.0"
AXE = "axe-core@4.11.0"
"""Looks for what keeps people from using a page."""
GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
"""Takes Go 1.21 or newer, which fetches the version that it needs by itself."""

_SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin", "/opt/homebrew/bin"])


def azurite_command() -> list[str]:
    """Return the command that starts the blob service of Azurite."""
    main = HOME / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node", path=_SEARCH)
    if main.exists() and node:
        return [node, str(main)]
    if program := shutil.which("azurite-blob", path=_SEARCH):
        return [program]
    raise MissingServerError("Azurite")


def axe_script() -> Path:
    """Return the script that checks whether a page can be used by everybody."""
    script = HOME / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        raise MissingServerError("axe-core")
    return script


def gcs_program() -> str:
    """Return the program of the Google Cloud Storage server."""
    program = shutil.which("fake-gcs-server", path=os.pathsep.join([str(HOME / "bin"), _SEARCH]))
    if program is None:
        raise MissingServerError("fake-gcs-server")
    return program


def install_node_packages() -> None:
    """Install Azurite and axe-core with npm, which comes from Debian where this is root on it and there is none."""
    if is_missing(azurite_command) or is_missing(axe_script):
        npm = shutil.which("npm", path=_SEARCH)
        if npm is None:
            installed_by_apt(["npm"])
        quietly = ["--silent", "--no-fund", "--no-audit"]
        subprocess.run([npm or "npm", "install", *quietly, "--prefix", HOME, AZURITE, AXE], check=True)
    azurite_command()
    axe_script()


def build_gcs() -> None:
    """Build the Google Cloud Storage server with Go."""
    if is_missing(gcs_program):
        print("services: building fake-gcs-server", file=sys.stderr)  # noqa: T201 - for the person who waits
        environment = {**os.environ, "GOBIN": str(HOME / "bin")}
        subprocess.run([go_program(), "install", GCS], check=True, env=environment)
    gcs_program()
