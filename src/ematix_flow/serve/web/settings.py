"""How a page is served: its run log, who may do what, and what can be queried; frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.commit.runlog.log import RunLog

READ, QUERY, WRITE, ADMIN = "read", "query", "write", "admin"
VIEWER, EDITOR, ADMINISTRATOR = "viewer", "editor", "admin"
PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    VIEWER: (READ,),
    EDITOR: (READ, QUERY, WRITE),
    ADMINISTRATOR: (READ, QUERY, WRITE, ADMIN),
}
"""What each role may do, the weakest role first."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class Rbac:
    """Roles by headers that a proxy in front of the page sets; whoever reaches the page past it could set them too."""

    identity_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    group_roles: Mapping[str, str] = field(default_factory=dict)
    admins: tuple[str, ...] = ()
    default_role: str | None = VIEWER
    """The role of those that no group gives one; None for none at all."""

    def __post_init__(self) -> None:
        for role in (*self.group_roles.values(), *((self.default_role,) if self.default_role else ())):
            if role not in PERMISSIONS:
                raise DeclareError(f"there is no role {role!r}", hint=did_you_mean(role, PERMISSIONS))

    @classmethod
    def of(cls, value: Any) -> Rbac | None:
        """Return the roles of what a program gave: nothing, such a value, or its fields."""
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            fields = {**value, "admins": tuple(value.get("admins", ()))}
            return cls(**fields)
        raise DeclareError(f"rbac= takes an Rbac or its fields, not {type(value).__name__}")

    def role_of(self, identity: str, groups: tuple[str, ...]) -> str | None:
        """Return the role of a person: admin by name, else the strongest of the groups, else the default."""
        if identity in self.admins:
            return ADMINISTRATOR
        strength = list(PERMISSIONS)
        given = [self.group_roles[group] for group in groups if group in self.group_roles]
        return max(given, key=strength.index) if given else self.default_role


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Everything that decides about one page."""

    log: RunLog
    token: str | None = field(default=None, repr=False)
    rbac: Rbac | None = None
    read_only: bool = False
    hosts: tuple[str, ...] = LOOPBACK
    """Names under which the page is reached; requests for others are refused, which keeps other sites out."""
    user: str = ""
    """The person of a page without login: the user of this machine."""
    datasources: Mapping[str, str] = field(default_factory=dict)
    """Names of what can be queried, each with the name or the address of its connection."""
    analytics: Path | None = None
    """The file of saved queries and dashboards; next to the run log where none is named."""
    ui_folder: Path | None = None
    """A folder of own pages that are served instead."""
