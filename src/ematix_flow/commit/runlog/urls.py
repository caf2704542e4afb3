"""Reads the address of a run log: its kind of backend and its options; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ematix_flow.errors import DeclareError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES = {
    "sqlite": "sqlite",
    "file": "file",
    "memory": "memory",
    "postgres": "postgres",
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "duckdb": "duckdb",
    "s3": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "azure": "azure",
    "azureblob": "azure",
}
"""Scheme of an address -> kind of backend."""

_EVERYWHERE = ("create_tables", "retention_days")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "sqlite": (),
    "file": (),
    "memory": (),
    "postgres": ("schema",),
    "mysql": ("table_prefix",),
    "duckdb": ("schema",),
    "s3": ("region", "endpoint", "profile", "path_style", "access_key_id", "secret_access_key"),
    "gcs": ("endpoint", "credentials_path", "anonymous"),
    "azure": ("endpoint", "account_key", "sas_token"),
}
_DRIVERS = frozenset({"postgres", "mysql"})
"""Kinds whose drivers read the other options of an address."""

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Address:
    """An address in its parts."""

    kind: str
    url: str = field(repr=False)
    """What a driver is given: the address without our options."""
    location: str = field(default="", repr=False)
    """The text between the scheme and the options."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def switch(self, name: str, default: bool) -> bool:  # noqa: FBT001 - what holds when nothing is said
        """Return an option that is true or false."""
        value = self.options.get(name, "").lower()
        if value and value not in _SWITCH:
            raise DeclareError(f"the run log's {name} is true or false")
        return _SWITCH[value] if value else default

    @property
    def retention(self) -> timedelta | None:
        """Return how long records are retained; None for ever."""
        days_text = self.options.get("retention_days")
        if days_text is None:
            return None
        try:
            days = float(days_text)
        except ValueError:
            days = 0.0
        if not 0 < days < 100_000:  # noqa: PLR2004 - three centuries
            raise DeclareError("the run log's retention_days is a number of days above zero")
        return timedelta(days=days)


def read_address(text: str) -> Address | None:
    """Return the parts of an address, or None for a bare path or name; no message repeats what may be a password."""
    scheme, separator, location = text.partition("://")
    if not separator:
        return None
    kind = SCHEMES.get(scheme.lower())
    if kind is None:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        near = did_you_mean(scheme.lower(), SCHEMES)
        hint = f"{near.partition('?')[0]}? Known: {known} or a path." if "?" in near else f"known: {known} or a path."
        raise DeclareError(f"a run log cannot live in {scheme!r}", hint=hint)
    location, _, query = location.partition("?")
    own = (*_EVERYWHERE, *_OPTIONS[kind])
    pairs = [(option.partition("=")[0], option) for option in query.split("&") if option]
    others = [(name, option) for name, option in pairs if name not in own]
    if others and kind not in _DRIVERS:
        name = others[0][0]
        raise DeclareError(f"a run log in {scheme}:// has no option {name!r}", hint=did_you_mean(name, own))
    # A driver is given its options unchanged: each has its own meaning of a plus sign.
    left = "&".join(option for _, option in others)
    plain = location if kind in _DRIVERS else unquote(location)
    options = {name: unquote(option.partition("=")[2]) for name, option in pairs if name in own}
    return Address(kind, f"{kind}://{location}{'?' if left else ''}{left}", plain, options)
