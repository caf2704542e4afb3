"""DuckDB."""

from ematix_flow.connect.base.capabilities import ALL_MODES, Capabilities
from ematix_flow.connect.base.system import DATABASE, SystemRecord
from ematix_flow.declare.connection.databases import DuckDBConnection

_CLASS = f"{__name__}.database:DuckDB"

DUCKDB = SystemRecord(
    DuckDBConnection,
    DATABASE,
    source=_CLASS,
    target=_CLASS,
    capabilities=Capabilities(
        modes=ALL_MODES,
        source=True,
        guarantee="exactly once, for one process at a time on one host",
        transactional_ddl=True,
        enforces_types=False,
    ),
)
SYSTEMS = (DUCKDB,)
