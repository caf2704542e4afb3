"""Which project this process works for, which distinguishes pipelines of one name in shared targets."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ematix_flow.connect.config.sources import PROJECT_SOURCE, project_file, project_text
from ematix_flow.declare.toml import line_of, parsed
from ematix_flow.errors import DeclareError, Origin

VARIABLE = "EMATIX_FLOW_PROJECT"
NO_PROJECT = "-"
"""What the variable says where there is no project, whatever file is in the working directory."""

LONGEST = 100
_DIGEST_LENGTH = 12


@dataclass(frozen=True, slots=True)
class ProjectName:
    """The name of a project; empty where there is none."""

    name: str = ""
    explicit: bool = False
    """Given by a person. Otherwise it is the folder of the project file, which a new release may change."""
    folder: str = ""
    """The folder of the project file that has the name: what the project was called before."""

    @property
    def digest(self) -> str:
        """Return the fixed-size form of the name for keys."""
        return project_digest(self.name)

    @property
    def in_slots(self) -> str:
        """Return the part of the names of slots; a folder is none, so that a load is known again from a new folder."""
        return self.name if self.explicit else ""

    @property
    def legacy(self) -> tuple[str, ...]:
        """Return the names under which earlier runs of this project may have been stored, the newest first."""
        names = (self.folder if self.explicit else "", "")
        return tuple(dict.fromkeys(name for name in names if name != self.name))

    @property
    def as_variable(self) -> str:
        """Return the value of the variable for another process to work for the same project."""
        return self.name or NO_PROJECT


def project_digest(name: str) -> str:
    """Return the fixed-size form of a project's name; empty for no project."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:_DIGEST_LENGTH] if name else ""


def current_project() -> ProjectName:
    """Return the project: by the variable, by `name` under [project] in the project file, or by the folder of that file."""
    folder = str(project_file().parent.resolve()) if project_file().is_file() else ""
    configured = os.environ.get(VARIABLE, "").strip()
    if configured == NO_PROJECT:
        return ProjectName()
    if configured:
        if Path(configured).is_absolute():
            return ProjectName(str(Path(configured)))
        # Another project may go by the folder at the same time, for example production next to staging.
        return ProjectName(_checked(configured, f"environment variable {VARIABLE}", None), explicit=True)
    named = _named_in_file() if folder else None
    if named is not None:
        return ProjectName(named, explicit=True, folder=folder)
    return ProjectName(folder)


def _named_in_file() -> str | None:
    text = project_text()
    table = parsed(text, PROJECT_SOURCE).get("project")
    if not isinstance(table, dict) or "name" not in table:
        return None
    origin = Origin(PROJECT_SOURCE, line_of(text, ("project",), "name"))
    return _checked(table["name"], "[project] name", origin)


def _checked(name: object, config_source: str, origin: Origin | None) -> str:
    hint = f"a name like 'shop' or 'shop-staging', at most {LONGEST} characters; without one the folder counts."
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise DeclareError(f"{config_source} is {name!r}, which is no name of a project", hint=hint, origin=origin)
    if len(name) > LONGEST:
        raise DeclareError(f"{config_source} has {len(name)} characters", hint=hint, origin=origin)
    if name == NO_PROJECT or Path(name).is_absolute():
        raise DeclareError(f"{config_source} is {name!r}, which is kept for other things", hint=hint, origin=origin)
    return name.strip()
