"""Reads what the environment and the three TOML files say about connections; it builds and expands nothing."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.declare.aliases import FIELD_SPELLINGS, KIND_SPELLINGS, kind_named
from ematix_flow.declare.connection.registry import KINDS, setting_names
from ematix_flow.declare.toml import LARGEST, parsed
from ematix_flow.errors import DeclareError, DeclareTypeError, Origin, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROJECT_SOURCE = "./.ematix-flow.toml"
FOLDER_SOURCE = "./connections.toml"
USER_SOURCE = "~/.ematix-flow/connections.toml"
REGISTRY_SOURCE = "registered in this process"

_PREFIX = "EMATIX_FLOW_"
_DSN = "EMATIX_FLOW_DSN"
_SIMILARITY = 0.8


@dataclass(frozen=True, slots=True)
class Entry:
    """What one config source declares about one connection, unexpanded."""

    config_source: str
    fields: Mapping[str, object]
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """One variable EMATIX_FLOW_<KIND>_<NAME>_<PROPERTY>; without a known property `name` is the unread rest."""

    variable: str
    kind: str
    name: str
    field: str | None


def env_key(name: str) -> str:
    """Return a connection's name as it is spelled in environment variables."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def dsn_variables(name: str) -> list[str]:
    """Return the variables that may hold the URL of a connection, the strongest first."""
    return [f"{_DSN}_{env_key(name)}", *([_DSN] if name == "default" else [])]


def dsn_entry(name: str) -> Entry | None:
    """Return the URL that the environment has for a connection; an empty variable counts as unset."""
    for variable in dsn_variables(name):
        if os.environ.get(variable):
            return Entry(f"environment {variable}", {"url": os.environ[variable]})
    return None


def property_entry(name: str, others: Iterable[str]) -> Entry | None:
    """Return the fields that single variables set; `others` are names that may own a variable with a longer name."""
    key, properties = env_key(name), list(_properties())
    longer = {env_key(other) for other in others} | {item.name for item in properties if item.field}
    for item in properties:
        if item.field is None and item.name.startswith(f"{key}_") and not _owned(item.name, key, longer):
            requested = item.name.removeprefix(f"{key}_").lower()
            message = f"environment variable {item.variable} sets no field of {item.kind} connections"
            raise DeclareTypeError(message, hint=did_you_mean(requested, _field_names(item.kind)))
    own = [item for item in properties if item.field and item.name == key]
    if not own:
        return None
    kinds = {kind_named(item.kind, {}): item.kind for item in own}
    if len(kinds) > 1:
        raise DeclareError(f"the environment sets fields of connection {name!r} for kinds {', '.join(sorted(kinds))}")
    fields = {item.field: os.environ[item.variable] for item in own if item.field}
    return Entry(f"environment {_PREFIX}{own[0].kind.upper()}_{key}_*", {"kind": own[0].kind, **fields})


def names_in_environment() -> set[str]:
    """Return the names, in capitals, that the environment knows connections under."""
    dsn = {key.removeprefix(f"{_DSN}_") for key in os.environ if key.startswith(f"{_DSN}_") and os.environ[key]}
    default = {"DEFAULT"} if os.environ.get(_DSN) else set()
    return dsn | default | {item.name for item in _properties() if item.field}


def project_file() -> Path:
    """Return the file of the working directory."""
    return Path.cwd() / ".ematix-flow.toml"


def project_text() -> str:
    """Return the text of the file of the working directory; empty when there is none, an error when it cannot be read."""
    return _text_of(project_file(), PROJECT_SOURCE)


def project_table(name: str) -> Mapping[str, object]:
    """Return a table of the file of the working directory; an empty one when there is none, or no file that can be read."""
    try:
        table = parsed(project_file().read_text(encoding="utf-8"), PROJECT_SOURCE).get(name)
    except (OSError, DeclareError, UnicodeDecodeError):
        return {}
    return table if isinstance(table, dict) else {}


def user_file() -> Path:
    """Return the file of the user."""
    return Path.home() / ".ematix-flow" / "connections.toml"


def file_entries() -> Iterator[tuple[str, dict[str, Entry]]]:
    """Return the entries of each file with the file's name, the strongest file first, each read when it is reached."""
    config_sources = (
        (PROJECT_SOURCE, project_file()),
        (FOLDER_SOURCE, Path.cwd() / "connections.toml"),
        (USER_SOURCE, user_file()),
    )
    for config_source, path in config_sources:
        text = _text_of(path, config_source)
        yield config_source, _entries(parsed(text, config_source), text, config_source)


def _properties() -> Iterator[Property]:
    # Longest first: delta_s3 before delta, secret_access_key before access_key.
    kinds = sorted([*KINDS, *KIND_SPELLINGS], key=len, reverse=True)
    for variable in sorted(name for name, value in os.environ.items() if value):
        remainder = variable.removeprefix(_PREFIX)
        kind = next((candidate for candidate in kinds if remainder.startswith(f"{candidate.upper()}_")), None)
        if remainder == variable or kind is None:
            continue
        remainder = remainder[len(kind) + 1 :]
        fields = sorted(_field_names(kind), key=len, reverse=True)
        field = next((candidate for candidate in fields if remainder.endswith(f"_{candidate.upper()}")), None)
        name = remainder[: -len(field) - 1] if field else remainder
        if name:
            yield Property(variable, kind, name, field)


def _field_names(kind_name: str) -> set[str]:
    """Return the fields of every kind that a name may mean, in all spellings."""
    kinds = {kind_named(kind_name, {}), kind_named(kind_name, {"bucket": ""})}
    return {field for kind in kinds for field in (*setting_names(KINDS[kind]), *FIELD_SPELLINGS.get(kind, {}))}


def _owned(variable: str, key: str, names: Iterable[str]) -> bool:
    """Return whether a longer name than `key` claims a variable."""
    return any(len(name) > len(key) and variable.startswith(f"{name}_") for name in names)


def _text_of(path: Path, config_source: str) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise DeclareError(f"{config_source} is larger than {LARGEST} bytes")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise DeclareError(f"{config_source} cannot be read: {type(error).__name__}") from None


def _entries(document: Mapping[str, object], text: str, config_source: str) -> dict[str, Entry]:
    for key, value in document.items():
        is_near = difflib.SequenceMatcher(None, key.lower(), "connections").ratio() >= _SIMILARITY
        if is_near and key not in {"connections", "connection"} and isinstance(value, (dict, list)):
            raise DeclareError(
                f"{config_source} has an unknown table [{key}]", hint="did you mean [connections.<name>]?"
            )
    tables, blocks = document.get("connections", {}), document.get("connection", [])
    if not isinstance(tables, dict) or not isinstance(blocks, list):
        hint = "write [connections.<name>], or [[connection]] with a name."
        raise DeclareError(f"{config_source} does not hold its connections as tables", hint=hint)
    entries = {
        name: Entry(config_source, _fields(value), _line(name, text, config_source)) for name, value in tables.items()
    }
    for block in blocks:
        name = block.get("name") if isinstance(block, dict) else None
        if not isinstance(name, str) or not name:
            raise DeclareError(f"{config_source} has a [[connection]] without a name")
        if name in entries:
            raise DeclareError(f"{config_source} describes connection {name!r} twice")
        fields = {key: value for key, value in block.items() if key != "name"}
        entries[name] = Entry(config_source, fields, _line(name, text, config_source))
    return entries


def _fields(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {"url": value}


def _line(name: str, text: str, config_source: str) -> Origin | None:
    quoted = re.escape(name)
    header = re.search(
        rf"^\s*(?:\[\s*connections\s*\.\s*[\"']?{quoted}[\"']?\s*\]|name\s*=\s*[\"']{quoted}[\"'])", text, re.MULTILINE
    )
    if header is None:
        return None
    return Origin(config_source, text.count("\n", 0, header.end()) + 1)
