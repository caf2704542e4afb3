"""PostgreSQL."""

from ematix_flow.connect.base.capabilities import ALL_MODES, Capabilities
from ematix_flow.connect.base.system import BROKER, DATABASE, SystemRecord
from ematix_flow.declare.connection.change_logs import PostgresCDCConnection
from ematix_flow.declare.connection.databases import PostgresConnection

_CLASS = f"{__name__}.database:Postgres"

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
        transactional_ddl=True,
    ),
)
POSTGRES_CDC = SystemRecord(PostgresCDCConnection, BROKER, stream_source=f"{__name__}.cdc.source:PostgresChanges")
SYSTEMS = (POSTGRES, POSTGRES_CDC)
