"""What every lake table can do, as data that each kind of lake adds to."""

from __future__ import annotations

from ematix_flow.connect.base.capabilities import ALL_MODES, FINITE, Capabilities

LAKE_CAPABILITIES = Capabilities(
    modes=ALL_MODES,
    source=True,
    guarantee="exactly once: the table's own commit carries the load, and the metadata tables follow it",
    constraints=False,
    rolls_back=False,
    times=FINITE,
)
