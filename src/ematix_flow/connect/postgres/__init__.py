"""PostgreSQL."""

from ematix_flow.connect.base.capabilities import ALL_MODES, Capabilities, TimeRange
from ematix_flow.connect.base.system import BROKER, DATABASE, SystemRecord
from ematix_flow.declare.connection.change_logs import PostgresCDCConnection
from ematix_flow.declare.connection.databases import PostgresConnection

_CLASS = f"{__name__}.database:Postgres"

_TIMES = TimeRange(
    # Julian day 0 is its first one. The last instant that rows can carry is what others call infinity.
    (-2_440_588, 2_145_042_905),
    (-210_866_803_200_000_000, 2**63 - 2),
    "4713 BC and 5874897",
    "4713 BC and 294246",
)

POSTGRES = SystemRecord(
    PostgresConnection,
    DATABASE,
    source=_CLASS,
    target=_CLASS,
    capabilities=Capabilities(
        modes=ALL_MODES,
        source=True,
        guarantee="exactly once, all modes",
        cannot_store=("nul",),
        times=_TIMES,
        transactional_ddl=True,
        stages_ahead=True,
    ),
)
POSTGRES_CDC = SystemRecord(PostgresCDCConnection, BROKER, stream_source=f"{__name__}.cdc.source:PostgresChanges")
SYSTEMS = (POSTGRES, POSTGRES_CDC)
