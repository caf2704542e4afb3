"""References to secrets under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.connect.config.secrets import (
    AWSSecretsManagerResolver,
    EnvResolver,
    GCPSecretManagerResolver,
    Resolver,
    VaultResolver,
    expand,
    register_resolver,
    unregister_resolver,
)
from ematix_flow.errors import MissingSecretError

__all__ = [
    "AWSSecretsManagerResolver",
    "EnvResolver",
    "GCPSecretManagerResolver",
    "MissingSecretError",
    "Resolver",
    "VaultResolver",
    "expand",
    "register_resolver",
    "unregister_resolver",
]
