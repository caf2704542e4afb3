"""Which Spark to use and how, as a frozen value from the `[spark]` table and the environment; starts nothing and reads no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "EMATIX_FLOW_SPARK_"
"""What the environment variable of each setting begins with."""

DEFAULT_MASTER = "local[*, 4]"
"""All cores of this machine. Plain `local[2]` never retries a task, hence the second number."""

EXTENSIONS = "spark.sql.extensions"
"""The one setting of queries that a session has from its start or never."""

_CONF_PREFIX = f"{PREFIX}CONF_"
_CHECKPOINT_VARIABLE = "EMATIX_FLOW_CHECKPOINT_ROOT"
ENGINE_VARIABLE = "EMATIX_FLOW_ENGINE"
_NUMBERS: Mapping[str, tuple[int, str]] = {
    "idle_minutes": (24 * 60, "a whole number of minutes"),
    "max_connections": (10_000, "a whole number of connections"),
    "executor_wait_seconds": (24 * 3600, "a whole number of seconds"),
}
"""Settings that are numbers: the largest one, and what they count."""
_LISTS = frozenset({"packages", "excludes", "repositories", "jars", "shared_paths"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "profile": ("auto", "short", "long"),
    "archive": ("auto", "off"),
    "engine": ("spark", "local"),
    "warm": ("auto", "off"),
    "log_level": ("OFF", "ERROR", "WARN", "INFO", "DEBUG"),
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The session that a run requires; two equal values can share one session."""

    engine: Literal["spark", "local"] = field(default="spark", compare=False)
    """Who moves rows between systems: Spark, or `local` for threads of the command, which need no Java."""
    master: str = DEFAULT_MASTER
    remote: str | None = field(default=None, repr=False)
    """A Spark Connect address; it may carry a token and so is left out of a repr."""
    packages: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    checkpoint_root: str = field(default="~/.ematix-flow/checkpoints", compare=False)
    """Where streams keep their state; every query has its own folder below it."""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    profile: Literal["auto", "short", "long"] = "auto"
    """`short` starts quickly, `long` runs quickly; `auto` is `long` for streams with SQL, state or a lake that go on, and where a large lake table is to be rewritten."""
    log_level: str = "ERROR"
    archive: Literal["auto", "off"] = "auto"
    """`auto` keeps prepared Java classes in the user's cache folder, which more than halves the start."""
    warm: Literal["auto", "off"] = field(default="auto", compare=False)
    """`auto` lets commands share a Spark that stays between them, and starts it where there is none."""
    idle_minutes: int = field(default=15, compare=False)
    """After how long without use a warm engine ends."""
    max_connections: int | None = field(default=None, compare=False)
    """How many tasks of a load may connect to one database at a time; None queries the database for a limit."""
    shared_paths: tuple[str, ...] = field(default=(), compare=False)
    """Folders that executors on other machines see under the same path as the driver."""
    staging: str | None = field(default=None, compare=False, repr=False)
    """A bucket through which rows come from executors to a target that is a file of the driver: an address or a connection."""
    executor_wait_seconds: int = field(default=300, compare=False)
    """How long jobs on a cluster wait for executors when there is none, before the load is given up."""
    worker_imports: tuple[str, ...] = field(default=(), compare=False)
    """Modules that Python workers find already imported; the engine's choice, not a user's setting."""
    shared: bool = False
    """The session may be one of the warm engine.

    The engine's choice: commands share it, other programs when they request it.
    """
    heavy: bool = field(default=False, compare=False)
    """The work in sight is worth a slower start; the engine's choice, and no reason to replace a session that runs."""

    @property
    def spark_moves_rows(self) -> bool:
        """True when rows that move between systems are moved by Spark."""
        return self.engine == "spark"

    @property
    def runs_long(self) -> bool:
        """True when Java had better run quickly than start quickly."""
        return self.profile == "long" or (self.profile == "auto" and self.heavy)

    @property
    def uses_warm(self) -> bool:
        """True when the session is one of the engine that stays between commands."""
        return self.shared and self.warm == "auto" and self.is_local

    @property
    def is_local(self) -> bool:
        """True when driver and tasks are one Java process of this machine."""
        return self.remote is None and self.master.startswith("local")

    @property
    def remote_address(self) -> str:
        """Return where tasks run, for people, when that is not this machine; empty when it is."""
        if self.remote is not None:
            # What follows the address are its parameters, a token among them.
            return "" if self.remote.startswith("local") else self.remote.split(";")[0].rstrip("/")
        return "" if self.is_local else self.master


SETTINGS = tuple(f.name for f in fields(SparkSettings) if f.name not in ("worker_imports", "heavy", "shared"))
"""The names a user may write in `[spark]`."""


def settings_from(table: Mapping[str, Any], environ: Mapping[str, str]) -> SparkSettings:
    """Return the settings of a parsed `[spark]` table, each overridden by its environment variable."""
    _refuse_unknown(table, "the [spark] table")
    written = {**table, **_from_environment(environ)}
    if written.get("remote") and written.get("master"):
        raise DeclareError(
            "Spark has both a `master` and a `remote`.",
            hint="keep `remote` to use a Spark Connect server, `master` for everything else.",
        )
    values = {name: _value(name, value) for name, value in written.items() if name != "conf"}
    conf = _flat(table.get("conf", {})) | _conf_from_environment(environ)
    return SparkSettings(conf=conf, **values)


def joined_names(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Return the words of both, each once."""
    return tuple(dict.fromkeys((*first, *second)))


def joined_conf(first: Iterable[tuple[str, str]], second: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return Spark's settings of both: extensions add up, of everything else the second value counts."""
    conf: dict[str, str] = {}
    for key, value in (*first, *second):
        adds_up = key == EXTENSIONS and key in conf
        conf[key] = ",".join(joined_names(conf[key].split(","), value.split(","))) if adds_up else value
    return conf


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that have an environment variable with a value."""
    settings = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and not name.startswith(_CONF_PREFIX) and value
    }
    _refuse_unknown(settings, "the environment", format_name=lambda name: f"{PREFIX}{name.upper()}")
    if root := environ.get(_CHECKPOINT_VARIABLE):
        settings.setdefault("checkpoint_root", root)
    if engine := environ.get(ENGINE_VARIABLE):
        settings["engine"] = engine
    return settings


def _conf_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's own settings from variables such as `EMATIX_FLOW_SPARK_CONF_SPARK__UI__ENABLED`.

    `__` stands for a dot. A name in capitals is lowered; one with small letters is taken as it is written.
    """
    keys = {n: n.removeprefix(_CONF_PREFIX).replace("__", ".") for n in environ if n.startswith(_CONF_PREFIX)}
    return _flat({(k.lower() if k.isupper() else k): environ[n] for n, k in keys.items() if environ[n]})


def _refuse_unknown(names: Mapping[str, Any], where: str, format_name: Any = repr) -> None:
    known = set(SETTINGS)
    for name in names:
        if name not in known:
            raise DeclareTypeError(
                f"{format_name(name)} in {where} is not a Spark setting.", hint=did_you_mean(name, known)
            )


def _value(name: str, value: Any) -> Any:
    """Return one setting in its proper type."""
    if name in _LISTS:
        return _text_list(name, value)
    if name in _NUMBERS:
        return _bounded_int(name, value)
    if not isinstance(value, str):
        raise DeclareTypeError(f"Spark setting `{name}` takes text, not {type(value).__name__}.")
    if name not in _CHOICES:
        return value
    for choice in _CHOICES[name]:
        if value.lower() == choice.lower():
            return choice
    raise DeclareError(
        f"Spark setting `{name}` cannot be {value!r}.", hint=f"choose one of {', '.join(_CHOICES[name])}."
    )


def _bounded_int(name: str, value: Any) -> int:
    text, (most, counts) = str(value).strip(), _NUMBERS[name]
    if not text.isdecimal() or not 1 <= int(text) <= most:
        hint = f"write {counts} from 1 to {most}."
        raise DeclareError(f"Spark setting `{name}` cannot be {value!r}.", hint=hint)
    return int(text)


def _text_list(name: str, value: Any) -> tuple[str, ...]:
    """Return a list, written as one or with commas."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise DeclareTypeError(f"Spark setting `{name}` takes a list of texts.")


def _flat(conf: Any, prefix: str = "") -> dict[str, str]:
    """Return Spark's settings with dotted names, whether the TOML keys were quoted or nested tables."""
    if not isinstance(conf, Mapping):
        raise DeclareTypeError(f"Spark setting `conf` takes a table, not {type(conf).__name__}.")
    flat: dict[str, str] = {}
    for key, value in conf.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        elif not name.startswith("spark."):
            raise DeclareError(
                f"{name!r} in the Spark conf is no setting of Spark.", hint="they all begin with `spark.`"
            )
        else:
            flat[name] = _conf_text(name, value)
    return flat


def _conf_text(name: str, value: Any) -> str:
    """Return a value the way Spark spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DeclareTypeError(f"{name!r} in the Spark conf takes a text, a number or true/false.")
