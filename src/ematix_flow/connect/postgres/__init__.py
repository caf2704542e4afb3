"""PostgreSQL."""

from ematix_flow.connect.base.capabilities import ALL_MODES, Capabilities
from ematix_flow.connect.base.system import DATABASE, SystemRecord
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
SYSTEMS = (POSTGRES,)
