"""Finds and installs the stand-ins of Google's and Microsoft's buckets, which no Python package and no Debian one has.

Run as a program it makes sure that both are there: `python -m tests.services.emulators`. They lie in the environment of
the tests, and go with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.services.programs import MissingServerError, installed_by_apt

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = Path(sys.prefix) / "services"
AZURITE = "azurite@3.37.0"
AXE = "axe-core@4.11.0"
"""Looks for what keeps people from using a page."""
GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
"""Takes Go 1.21 or newer, which fetches the version that it needs by itself."""

_SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin", "/opt/homebrew/bin"])


def azurite_command() -> list[str]:
    """Give the command that starts the blob service of Azurite."""
    main = HOME / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node", path=_SEARCH)
    if main.exists() and node:
        return [node, str(main)]
    if found := shutil.which("azurite-blob", path=_SEARCH):
        return [found]
    raise MissingServerError("Azurite")


def axe_script() -> Path:
    """Give the script that checks whether a page can be used by everybody."""
    script = HOME / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        raise MissingServerError("axe-core")
    return script


def gcs_program() -> str:
    """Give the program of the Google Cloud Storage server."""
    found = shutil.which("fake-gcs-server", path=os.pathsep.join([str(HOME / "bin"), _SEARCH]))
    if found is None:
        raise MissingServerError("fake-gcs-server")
    return found


def ensure_installed() -> None:
    """Install what is missing with npm and Go; these come from Debian where this is root on it."""
    if _is_missing(azurite_command) or _is_missing(axe_script):
        npm = _tool("npm", "npm")
        quietly = ["--silent", "--no-fund", "--no-audit"]
        subprocess.run([npm, "install", *quietly, "--prefix", HOME, AZURITE, AXE], check=True)
    if _is_missing(gcs_program):
        environment = {**os.environ, "GOBIN": str(HOME / "bin")}
        subprocess.run([_tool("go", "golang-go"), "install", GCS], check=True, env=environment)
    azurite_command()
    axe_script()
    gcs_program()


def _is_missing(find: Callable[[], object]) -> bool:
    try:
        find()
    except MissingServerError:
        return True
    return False


def _tool(name: str, package: str) -> str:
    found = shutil.which(name, path=_SEARCH)
    if found is None:
        installed_by_apt([package])
    return found or shutil.which(name, path=_SEARCH) or name


if __name__ == "__main__":
    try:
        ensure_installed()
    except (MissingServerError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{error}\nthe buckets of the tests need Node with npm, and Go 1.21 or newer")
