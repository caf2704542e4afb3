"""A gate before the Google Cloud Storage of the tests: it gives out tokens for one key, and lets only these pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.services.http_faults import FaultyProxy, Handler

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "canary-token-Zt5x"
_GIVEN = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
_REFUSED = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}


class GcsGate(FaultyProxy):
    """Listens on a free port, and writes the key of a service account that it knows to a file."""

    def __init__(self, port: int, key_file: Path) -> None:
        super().__init__(port, _Gate)
        self.key_file = key_file
        self.gives_tokens = True
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "project_id": "flow",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "flow@flow.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": f"{self.endpoint}/token",
        }
        key_file.write_text(json.dumps(account))


class _Gate(Handler):
    def answered(self) -> bool:
        """Answer what is about tokens and rights; the rest is for the service."""
        gate = cast("GcsGate", self.server)
        if self.path == "/token":
            known = gate.gives_tokens
            self._answer(
                200 if known else 400,
                {"Content-Type": "application/json"},
                json.dumps(_GIVEN if known else _REFUSED).encode(),
            )
            return True
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {}, b"")
            return True
        if "/forbidden-" in self.path:
            self._answer(403, {}, b"")
            return True
        return False
