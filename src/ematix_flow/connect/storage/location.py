"""Where a bucket is, whatever the service: its address for people, and what connections may configure about it.

It sends no request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping


class BucketLocation(ABC):
    """A bucket, a prefix in it and how to get there; what it shows of itself holds no secret."""

    __slots__ = ()

    service_kind: ClassVar[str]
    scheme: ClassVar[str]
    """How addresses begin."""
    noun: ClassVar[str] = "bucket"
    """What the service calls a bucket, in its settings too."""
    prefix: str
    """Empty, or a path that ends with a slash."""

    @property
    def root(self) -> str:
        """Return the name of the bucket."""
        return str(getattr(self, self.noun))

    @property
    def anywhere(self) -> Self:
        """Return how to get to the service, whatever the bucket."""
        return cast("Self", replace(cast("Any", self), prefix="", **{self.noun: ""}))

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Return the address of the service; empty for the default one."""

    @property
    @abstractmethod
    def service(self) -> str:
        """Return the service for people."""

    @property
    @abstractmethod
    def honors_conditions(self) -> bool:
        """Return whether the service is known to keep conditions on writes; others are probed."""

    @property
    def user(self) -> str | None:
        """Return the user of the requests, for people."""
        return None

    @property
    def display_address(self) -> str:
        """Return the address for people."""
        return self.address("").rstrip("/")

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return f"{self.scheme}://{self.root}/{self.prefix}{key}"

    def identity(self) -> tuple[str, ...]:
        """Return what two names of the same objects have in common."""
        return (self.service_kind, self.endpoint, self.root, self.prefix)

    def info(self) -> Mapping[str, object]:
        """Return the service and the address for people."""
        return {"host": self.service, "port": None, "dbname": self.display_address, "user": self.user}


def as_prefix(written: str) -> str:
    """Return a prefix as locations have it."""
    return f"{written.strip('/')}/".lstrip("/")


def check_endpoint(name: str, endpoint: str, what: str = "bucket") -> None:
    """Refuse an address that is none of a web service."""
    if not endpoint.startswith(("http://", "https://")):
        message = f"connection {name!r}: the endpoint of a {what} begins with http:// or https://"
        raise RunError(message)
