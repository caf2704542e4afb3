"""Tests of a user's pipeline without any server: the declared load, over given rows, into a database that vanishes.

    from ematix_flow.testing import run_with
    from my_pipelines import sync_customers

    def test_an_empty_email_becomes_null():
        done = run_with(
            sync_customers,
            [{"customer_id": 1, "email": "  ", "name": "Ada", "updated_at": "2026-01-02 03:04:05"}],
            target=[{"customer_id": 1, "email": "a@example.com", "name": "Ada", "updated_at": "2026-01-01T00:00:00Z"}],
        )
        assert [row["email"] for row in done.rows] == ["a@example.com", None]
        assert done.result["rows_closed"] == 1

The pipeline may be declared for any database. Modes, keys, normalisers, column maps, pre-load transforms, expectations
about rows and rejects are the real ones; only the systems on both sides are replaced by one DuckDB file.
"""

from __future__ import annotations

from ematix_flow.engine.api.testing import TestResult, run_with

__all__ = ["TestResult", "run_with"]
