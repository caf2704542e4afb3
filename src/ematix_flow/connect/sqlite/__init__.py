"""SQLite."""

from ematix_flow.connect.base.capabilities import ALL_MODES, FOUR_DIGITS, Capabilities
from ematix_flow.connect.base.system import DATABASE, SystemRecord
from ematix_flow.declare.connection.databases import SQLiteConnection

_CLASS = f"{__name__}.database:SQLite"

SQLITE = SystemRecord(
    SQLiteConnection,
    DATABASE,
    source=_CLASS,
    target=_CLASS,
    capabilities=Capabilities(
        modes=ALL_MODES,
        source=True,
        guarantee="exactly once, on one host",
        transactional_ddl=True,
        enforces_types=False,
        cannot_store=("nan",),
        times=FOUR_DIGITS,
    ),
)
SYSTEMS = (SQLITE,)
