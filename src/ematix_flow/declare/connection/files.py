"""The connections to plain files in folders and in buckets, with the settings each takes; none of them is opened here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from ematix_flow.declare.aliases import FILE_FORMATS
from ematix_flow.declare.connection.base import Connection, is_open
from ematix_flow.declare.connection.databases import S3_KEYS, DeltaS3Connection
from ematix_flow.declare.pipeline.file_options import READ_OPTIONS
from ematix_flow.errors import did_you_mean

Options: TypeAlias = Mapping[str, object]

_FORMATS = ("parquet", "csv", "orc", "json_lines")
_GCS_URL = re.compile(r"gs://(?P<bucket>[^/@?#:]+)(?:/(?P<prefix>[^?#]*))?")
_AZURE_URLS = (
    re.compile(
        r"(?:abfss?|wasbs?)://(?P<container>[^/@?#:]+)@(?P<account>[^./@?#:]+)\.(?:dfs|blob)\.(?P<host>[^/@?#:]+)"
        r"(?:/(?P<prefix>[^?#]*))?"
    ),
    re.compile(
        r"https://(?P<account>[^./@?#:]+)\.(?:dfs|blob)\.(?P<host>[^/@?#:]+)/(?P<container>[^/@?#:]+)"
        r"(?:/(?P<prefix>[^?#]*))?"
    ),
    re.compile(r"(?:az|azure)://(?P<container>[^/@?#:]+)(?:/(?P<prefix>[^?#]*))?"),
)
_AZURE_HOST = "core.windows.net"


@dataclass(frozen=True, slots=True, repr=False)
class _Files(Connection):
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({"format": _FORMATS})
    spellings: ClassVar[Mapping[str, Mapping[str, str]]] = MappingProxyType({"format": FILE_FORMATS})

    csv_read_options: Options | None = field(default=None, hash=False, kw_only=True)
    json_read_options: Options | None = field(default=None, hash=False, kw_only=True)

    def _check(self) -> None:
        declared: object = getattr(self, "format", "")
        for name, (file_format, known) in READ_OPTIONS.items():
            options: Options | None = getattr(self, name)
            if options is None:
                continue
            if declared != file_format and not is_open(declared):
                raise self._wrong(f"takes no {name}", f"they belong to format {file_format!r}.")
            for key in options:
                if key not in known:
                    raise self._wrong(f"has an unknown key {key!r} in {name}", did_you_mean(key, known))


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStoreLocalConnection(_Files):
    """Plain files in a local folder."""

    kind: ClassVar[str] = "object_store_local"
    required: ClassVar[tuple[str, ...]] = ("path", "format")

    path: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStoreS3Connection(_Files):
    """Plain files in a bucket."""

    kind: ClassVar[str] = "object_store_s3"
    required: ClassVar[tuple[str, ...]] = (*DeltaS3Connection.required, "format")

    endpoint: str = ""
    bucket: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    format: str = ""
    prefix: str = ""
    default_credentials: bool = field(default=False, kw_only=True)
    """Take the endpoint and the keys from where the AWS libraries look for them."""
    profile: str | None = field(default=None, kw_only=True)
    """Take the keys from this profile of the AWS configuration."""
    path_style: bool | None = field(default=None, kw_only=True)
    """Name the bucket in the path of a request instead of its host; by default everywhere but at Amazon."""

    def _required_fields(self) -> tuple[str, ...]:
        chain = self.default_credentials or bool(self.profile)
        return tuple(n for n in self.required if not (chain and n in S3_KEYS))

    def _check_family(self) -> None:
        if self.profile and self.access_key_id:
            raise self._wrong("has a profile and keys", "give one of them.")


@dataclass(frozen=True, slots=True, repr=False)
class _UrlBucket(_Files):
    """Files in a bucket that a URL may name; `url` fills in the fields that mean the same."""

    credential_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of which one names the credentials."""
    from_url: ClassVar[tuple[str, ...]] = ()
    """Required fields that a URL contains."""

    url: str | None = field(default=None, kw_only=True)
    default_credentials: bool = field(default=False, kw_only=True)
    """Take the credentials from where the libraries of the service look for them."""

    def _required_fields(self) -> tuple[str, ...]:
        return tuple(n for n in self.required if not (self.url and n in self.from_url))

    def _check_family(self) -> None:
        if self.url and not is_open(self.url):
            for name, value in self._read_url(self.url).items():
                current = getattr(self, name)
                if current and not is_open(current) and str(current).strip("/") != value.strip("/"):
                    raise self._wrong(f"says two things about its {name}", "give it in the url or as a field.")
                self._set(name, value)
        chosen = [name for name in self.credential_fields if getattr(self, name)]
        if len(chosen) > 1:
            raise self._wrong(f"has {' and '.join(chosen)}", "give one of them.")
        if not chosen:
            raise self._wrong(f"needs {', '.join(self.credential_fields[:-1])} or {self.credential_fields[-1]}")

    def _read_url(self, url: str) -> dict[str, str]:
        """Return the fields that a URL fills in."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStoreGCSConnection(_UrlBucket):
    """Plain files in a bucket of Google Cloud Storage."""

    kind: ClassVar[str] = "object_store_gcs"
    required: ClassVar[tuple[str, ...]] = ("bucket", "format")
    credential_fields: ClassVar[tuple[str, ...]] = ("credentials_path", "default_credentials", "anonymous")
    from_url: ClassVar[tuple[str, ...]] = ("bucket",)

    bucket: str = ""
    format: str = ""
    prefix: str = ""
    credentials_path: str | None = None
    """The file with the key of a service account."""
    endpoint: str = ""
    """The service, where it is not Google's own."""
    anonymous: bool = field(default=False, kw_only=True)
    """Send requests without credentials, as a public bucket allows."""

    def _read_url(self, url: str) -> dict[str, str]:
        url_match = _GCS_URL.fullmatch(url)
        if url_match is None:
            raise self._wrong("has a url that names no bucket", "say gs://bucket/prefix, and nothing else in it.")
        return {"bucket": url_match["bucket"], "prefix": url_match["prefix"] or ""}


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStoreAzureConnection(_UrlBucket):
    """Plain files in a container of Azure Blob Storage."""

    kind: ClassVar[str] = "object_store_azure"
    required: ClassVar[tuple[str, ...]] = ("container", "format")
    credential_fields: ClassVar[tuple[str, ...]] = (
        "account_key",
        "sas_token",
        "connection_string",
        "default_credentials",
    )
    from_url: ClassVar[tuple[str, ...]] = ("container",)

    account: str = ""
    container: str = ""
    format: str = ""
    prefix: str = ""
    account_key: str | None = None
    sas_token: str | None = None
    connection_string: str | None = None
    endpoint: str = ""
    """The blob service, where it is not `https://<account>.blob.core.windows.net`."""

    def _check(self) -> None:
        _Files._check(self)  # noqa: SLF001 - of the same class
        # A URL may name the account, and a connection string does.
        if not self.account and not self.connection_string and not is_open(self.url):
            raise self._wrong("needs account")

    def _read_url(self, url: str) -> dict[str, str]:
        url_match = next((match for pattern in _AZURE_URLS if (match := pattern.fullmatch(url))), None)
        if url_match is None:
            raise self._wrong(
                "has a url that names no container",
                "say abfss://container@account.dfs.core.windows.net/prefix or az://container/prefix; "
                "a token belongs into sas_token.",
            )
        settings = {name: value or "" for name, value in url_match.groupdict().items()}
        host = settings.pop("host", _AZURE_HOST)
        if host != _AZURE_HOST:
            settings["endpoint"] = f"https://{settings['account']}.blob.{host}"
        return settings


BucketConnection: TypeAlias = ObjectStoreS3Connection | ObjectStoreGCSConnection | ObjectStoreAzureConnection
