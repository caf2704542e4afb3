"""Leases: who may run a pipeline until when, by the clock of the backend; one that dies loses it at its end."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Claim, format_instant, instant

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.commit.runlog.backend import RunLogBackend


NAME = "~"
"""The separator before the name in a token, so that a lease is found without reading all others."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer to a claim: the token of the new holder, or the worker that holds the lease."""

    acquired: bool
    token: str | None
    holder: str | None
    expires_at: datetime | None
    epoch: int = 0
    """Higher than that of every earlier claim of this name."""


@dataclass(frozen=True, slots=True)
class ExpiredClaim:
    """A lease that its worker neither renewed nor released."""

    pipeline: str
    worker_id: str
    expires_at: datetime


def claim(backend: RunLogBackend, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
    """Take the lease of a pipeline unless a worker holds it."""
    while True:
        held, now = backend.find(Claim, (pipeline,)), backend.now()
        if held is not None and held.claim_token and instant(held.expires_at) > now:
            return ClaimResult(
                acquired=False, token=None, holder=held.worker_id, expires_at=instant(held.expires_at), epoch=held.epoch
            )
        epoch = (0 if held is None else held.epoch) + 1
        until = now + timedelta(seconds=lease_seconds)
        new_claim = Claim(
            pipeline,
            f"{uuid.uuid4().hex}{NAME}{pipeline}",
            worker_id,
            format_instant(now),
            format_instant(until),
            epoch,
        )
        if backend.swap(held, new_claim) is not None:
            return ClaimResult(
                acquired=True, token=new_claim.claim_token, holder=worker_id, expires_at=until, epoch=epoch
            )


def heartbeat(backend: RunLogBackend, token: str, lease_seconds: float, worker_id: str = "") -> bool:
    """Renew a lease from now on; return False when it was taken over or swept.

    A worker that begins what a scheduler has claimed for it passes its own id.
    """
    while True:
        held = _held(backend, token)
        if held is None:
            return False
        until = format_instant(backend.now() + timedelta(seconds=lease_seconds))
        if backend.swap(held, replace(held, expires_at=until, worker_id=worker_id or held.worker_id)) is not None:
            return True


def release(backend: RunLogBackend, token: str) -> bool:
    """Release a lease; return False when it was lost before. The epoch stays."""
    while True:
        held = _held(backend, token)
        if held is None:
            return False
        if backend.swap(held, _freed(held)) is not None:
            return True


def cancel(backend: RunLogBackend, pipeline: str, by: str) -> Claim | None:
    """Request that the holder of a lease stops, also while it is renewed; return the lease, None when it is free.

    The lease stays until the holder has stopped or is silent for too long, so that no other run begins meanwhile.
    """
    while (held := backend.find(Claim, (pipeline,))) is not None and held.claim_token:
        stored = backend.swap(held, replace(held, cancelled_by=held.cancelled_by or by))
        if stored is not None:
            return stored
    return None


def held(backend: RunLogBackend, token: str) -> Claim | None:
    """Return the lease of a token; None when it was taken over or swept."""
    return _held(backend, token)


def sweep(backend: RunLogBackend, now: datetime | None) -> list[ExpiredClaim]:
    """Free the leases that have ended, and return them; one that was renewed meanwhile is left alone."""
    at = now or backend.now()
    ended = [held for held in backend.all(Claim) if held.claim_token and instant(held.expires_at) <= at]
    return [
        ExpiredClaim(held.pipeline_name, held.worker_id, instant(held.expires_at))
        for held in ended
        if backend.swap(held, _freed(held)) is not None
    ]


def _held(backend: RunLogBackend, token: str) -> Claim | None:
    name = token.partition(NAME)[2]
    if name:
        held = backend.find(Claim, (name,))
        return held if held is not None and held.claim_token == token else None
    # Tokens of earlier versions do not name their lease.
    return next((held for held in backend.all(Claim) if token and held.claim_token == token), None)


def _freed(held: Claim) -> Claim:
    return replace(held, claim_token="", worker_id="", cancelled_by="")
