"""Finds the Java that Spark will run on; installs none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST = 17
"""Spark 4 refuses anything older."""

_INSTALLERS = (
    ("brew", "brew install openjdk@17"),
    ("apt-get", "apt-get install -y openjdk-17-jre-headless"),
    ("dnf", "dnf install -y java-17-openjdk-headless"),
    ("apk", "apk add openjdk17-jre-headless"),
)


@dataclass(frozen=True, slots=True)
class Java:
    """One installed Java."""

    command: str
    """The real path of the program."""
    major: int
    build: str
    """Text that differs whenever the virtual machine does."""


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java of JAVA_HOME and PATH that is new enough."""
    rejected: list[str] = []
    for path in _candidates(environ):
        java = _describe(path)
        if java is not None and java.major >= OLDEST:
            return java
        rejected.append(f"Java {java.major} at {path}" if java else f"no working Java at {path}")
    summary = "; found only " + ", ".join(rejected) if rejected else " and found none"
    hint = f"install it with: {_install(environ)}; or do without Spark: --engine local, or EMATIX_FLOW_ENGINE=local."
    raise MissingExtraError(f"Spark needs Java {OLDEST} or newer{summary}.", hint=hint)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(on_path).resolve()


def _describe(path: Path) -> Java | None:
    """Return what is known of a Java, by its release file or else by running it, which takes longer."""
    if not path.is_file():
        return None
    release = path.resolve().parent.parent / "release"
    text = release.read_text("utf-8", "replace") if release.is_file() else _version_text(path)
    version = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return Java(str(path.resolve()), int(version[1]), text) if version else None


def _version_text(path: Path) -> str:
    """Return what the program prints about itself, or nothing: macOS has a placeholder where Java is missing."""
    try:
        result = subprocess.run([str(path), "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stderr + result.stdout if result.returncode == 0 else ""


def _install(environ: Mapping[str, str]) -> str:
    """Return the one command that installs Java here."""
    for program, command in _INSTALLERS:
        if (program == "brew") == (sys.platform == "darwin") and shutil.which(program, path=environ.get("PATH")):
            return command
    return "conda install -c conda-forge openjdk=17"
