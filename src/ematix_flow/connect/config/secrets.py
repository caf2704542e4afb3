"""Fills in `${...}` references and remembers what must never be shown; it stores no secret outside this process."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

from ematix_flow.declare.connection.base import Connection
from ematix_flow.declare.masking import is_secret_field, secrets_in
from ematix_flow.errors import DeclareTypeError, MissingSecretError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Text = TypeVar("_Text", str, None)
_AnyConnection = TypeVar("_AnyConnection", bound=Connection)

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_BARE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_SHORTEST_SECRET = 4
# The last word of a variable that holds no secret: hiding "prod" or "5432" everywhere would ruin every message.
_PLAIN_SUFFIXES = frozenset({
    "BOOTSTRAP", "BROKERS", "BUCKET", "CATALOG", "DATABASE", "DATASET", "DB", "DBNAME", "DIR", "ENDPOINT", "ENV",
    "ENVIRONMENT", "FILE", "FORMAT", "GROUP", "HOME", "HOST", "HOSTNAME", "LOCATION", "NAME", "NAMESPACE", "PATH",
    "PORT", "PREFIX", "PROJECT", "REGION", "ROLE", "ROOT", "SCHEMA", "SERVERS", "STAGE", "STREAM", "TIMEZONE",
    "TOPIC", "TZ", "USER", "USERNAME", "WAREHOUSE", "ZONE",
})  # fmt: skip


class Resolver(Protocol):
    """Knows the secrets of one store."""

    def resolve(self, reference: str) -> str:
        """Return the secret that a reference names."""
        ...


@dataclass(frozen=True, slots=True)
class EnvResolver:
    """Reads environment variables."""

    def resolve(self, reference: str) -> str:
        """Return the value of a variable."""
        value = os.environ.get(reference)
        if value is None:
            raise MissingSecretError(f"environment variable {reference} is not set", hint=f"export {reference}=...")
        return value


@dataclass(frozen=True, slots=True)
class VaultResolver:
    """Reads version 2 key-value secrets of Vault through a `hvac` client; a reference is `path[#key]`."""

    client: Any
    mount_point: str = "secret"

    def resolve(self, reference: str) -> str:
        """Return one value of a secret, or all of it as JSON."""
        path, _, key = reference.partition("#")
        answer = self.client.secrets.kv.v2.read_secret_version(path=path, mount_point=self.mount_point)
        values = answer["data"]["data"]
        return _secret_field(values, key, reference) if key else json.dumps(values, sort_keys=True)


@dataclass(frozen=True, slots=True)
class AWSSecretsManagerResolver:
    """Reads AWS Secrets Manager through a `boto3` client; a reference is `id[#field]`."""

    client: Any

    def resolve(self, reference: str) -> str:
        """Return a secret, or one field of a secret that is JSON."""
        identifier, _, key = reference.partition("#")
        answer = self.client.get_secret_value(SecretId=identifier)
        text = answer.get("SecretString")
        if text is None:
            text = answer["SecretBinary"].decode()
        if not key:
            return str(text)
        try:
            values = json.loads(text)
        except json.JSONDecodeError:
            values = None
        if not isinstance(values, dict):
            raise MissingSecretError(f"secret {identifier!r} is no JSON object, so it has no field {key!r}")
        return _secret_field(values, key, reference)


@dataclass(frozen=True, slots=True)
class GCPSecretManagerResolver:
    """Reads Google Secret Manager; a reference is a full resource name, `NAME` or `NAME#VERSION`."""

    client: Any
    project: str | None = None

    def resolve(self, reference: str) -> str:
        """Return a version of a secret, the latest unless one is named."""
        name = reference
        if not reference.startswith("projects/"):
            if not self.project:
                hint = "give GCPSecretManagerResolver a project, or write projects/P/secrets/NAME/versions/V."
                raise MissingSecretError(f"secret {reference!r} has no project", hint=hint)
            secret, _, version = reference.partition("#")
            name = f"projects/{self.project}/secrets/{secret}/versions/{version or 'latest'}"
        answer = self.client.access_secret_version(request={"name": name})
        return str(answer.payload.data.decode())


_ENV = EnvResolver()
_resolvers: dict[str, Resolver] = {"env": _ENV}
_known: set[str] = set()
_lock = threading.Lock()


def register_resolver(prefix: str, resolver: Resolver) -> None:
    """Let `${prefix:reference}` be answered by a resolver."""
    if not prefix or ":" in prefix or not callable(getattr(resolver, "resolve", None)):
        raise DeclareTypeError("a resolver needs a prefix without ':' and a method resolve(reference)")
    _resolvers[prefix] = resolver


def unregister_resolver(prefix: str) -> None:
    """Forget a resolver; bare `${NAME}` references keep working."""
    _resolvers.pop(prefix, None)


def expand(text: _Text) -> _Text:
    """Return the text with every `${...}` filled in; each value is remembered for the redactor first."""
    if text is None:
        return None
    return _REFERENCE.sub(lambda match: _resolve(match.group(1)), text)


def expand_name(text: str) -> str:
    """Return the text with every `${...}` filled in; what environment variables say is a name then, and may be shown."""
    return _REFERENCE.sub(lambda match: _resolve(match.group(1), names=True), text)


def prefixes_in(text: str) -> set[str]:
    """Return the prefixes of the references in a text; a bare name counts as `env`."""
    return {inner.partition(":")[0] if ":" in inner else "env" for inner in _REFERENCE.findall(text)}


def resolved(connection: _AnyConnection) -> _AnyConnection:
    """Return a copy with every reference filled in; what it shows of itself is still what the user wrote."""
    if connection.written is not None:
        return connection
    settings = {name: _expand_deep(value) for name, value in connection.settings().items()}
    for name, value in settings.items():
        _remember_setting(name, value)
    changes: dict[str, Any] = {**settings, "written": connection}
    return replace(connection, **changes)


def remember(value: str) -> None:
    """Let the redactor hide this value from now on; very short ones would hide ordinary words."""
    if len(value) >= _SHORTEST_SECRET:
        with _lock:
            _known.add(value)


def known_secrets() -> frozenset[str]:
    """Return every value that must not be shown."""
    with _lock:
        return frozenset(_known)


def forget_secrets() -> None:
    """Empty the memory of the redactor."""
    with _lock:
        _known.clear()


def _secret_field(values: Mapping[str, Any], key: str, reference: str) -> str:
    if key not in values:
        raise MissingSecretError(f"secret {reference.partition('#')[0]!r} has no key {key!r}")
    value = values[key]
    return value if isinstance(value, str) else json.dumps(value)


def _resolve(inner: str, *, names: bool = False) -> str:
    prefix, separator, reference = inner.partition(":")
    if not separator:
        if not _BARE_NAME.fullmatch(inner):
            hint = "write ${NAME} with capitals, digits and _, or ${prefix:reference}."
            raise MissingSecretError(f"${{{inner}}} is no name of an environment variable", hint=hint)
        value = _ENV.resolve(inner)
    else:
        if prefix not in _resolvers:
            raise MissingSecretError(f"${{{inner}}} has an unknown prefix", hint=did_you_mean(prefix, _resolvers))
        value = _resolvers[prefix].resolve(reference)
    if not isinstance(value, str):
        raise DeclareTypeError(f"the resolver for {prefix!r} must give text, not {type(value).__name__}")
    plain = prefix == "env" or not separator
    if plain:
        secret: Iterable[str] = secrets_in(value) if names else _secrets_of(reference or inner, value)
    else:
        secret = (value, *_leaves(value))
    for secret_text in secret:
        remember(secret_text)
    return value


def _secrets_of(variable: str, value: str) -> Iterator[str]:
    """Return the parts of an environment variable that are secret."""
    yield from secrets_in(value)
    scheme, is_url, address = value.partition("://")
    if is_url:
        # An address of a web hook is a secret as a whole, the address of a server is not.
        is_secret = bool(secrets_in(value)) or (scheme in {"http", "https"} and bool(address.partition("/")[2]))
    else:
        is_secret = variable.rpartition("_")[2] not in _PLAIN_SUFFIXES
    if is_secret:
        yield value


def _leaves(value: str) -> Iterator[str]:
    """Return the texts inside a secret that is JSON, and the password of one that is a URL."""
    yield from secrets_in(value)
    try:
        document = json.loads(value)
    except ValueError:
        return
    if isinstance(document, dict):
        yield from (item for item in document.values() if isinstance(item, str))


def _expand_deep(value: Any) -> Any:
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, Connection):
        return resolved(value)
    if isinstance(value, Mapping):
        return {key: _expand_deep(item) for key, item in value.items()}
    return value


def _remember_setting(name: str, value: object) -> None:
    if not isinstance(value, str):
        return
    for secret in [value] if is_secret_field(name) else secrets_in(value):
        remember(secret)
        remember(unquote(secret))
