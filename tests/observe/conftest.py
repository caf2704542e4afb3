"""Endpoints and certificates for tests of what is told to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.config.secrets import forget_secrets
from ematix_flow.observe.alerts.registry import clear_alerters
from tests.observe.endpoints import Endpoint
from tests.services.certificates import write_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates for this machine."""
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    write_certificates(folder)
    return folder


@pytest.fixture
def trusted(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trust the authority of the tests."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
    return certificates


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Return a web service in plain text."""
    server = Endpoint()
    yield server
    server.close()


@pytest.fixture
def secure_endpoint(trusted: Path) -> Iterator[Endpoint]:
    """Return a web service with TLS."""
    server = Endpoint(trusted)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def empty_registries() -> Iterator[None]:
    """Forget alerters and secrets after each test."""
    yield
    clear_alerters()
    forget_secrets()
