"""Names in addresses: a slash in one is written %2F, which servers decode before routes see it; routes tell both apart."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import Scope

_SLASH = "\uffff"
"""What stands for the slash of a name while a request is routed; it is no character, so that no name has it."""


class _Name(Convertor[str]):
    """One segment of an address, with the slashes that the name in it has."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        """Return the segment."""
        return value.replace("/", _SLASH)


register_url_convertor("name", _Name())
NAME, RUN = "{name:name}", "{run_id:name}"
"""Parts of addresses that are the name of what is declared, and the id of a run, which may begin with such a name."""


def path_as_sent(scope: Scope) -> str:
    """Return the path of a request with its escapes, as far as the server tells it."""
    sent = scope.get("raw_path") or b""
    path: str = sent.partition(b"?")[0].decode("ascii", "replace")
    return path if unquote(path) == scope["path"] else ""


def keep_slashes(scope: Scope) -> None:
    """Let routes see the slashes of names apart from those of the address."""
    sent = path_as_sent(scope)
    if "%2f" in sent.lower():
        scope["path"] = "/".join(unquote(part).replace("/", _SLASH) for part in sent.split("/"))
