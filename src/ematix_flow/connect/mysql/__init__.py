"""MySQL and MariaDB."""

from ematix_flow.connect.base.capabilities import ALL_MODES, FOUR_DIGITS, Capabilities
from ematix_flow.connect.base.system import BROKER, DATABASE, SystemRecord
from ematix_flow.declare.connection.change_logs import MySQLCDCConnection
from ematix_flow.declare.connection.databases import MySQLConnection

_CLASS = f"{__name__}.database:MySQL"

MYSQL = SystemRecord(
    MySQLConnection,
    DATABASE,
    source=_CLASS,
    target=_CLASS,
    capabilities=Capabilities(
        modes=ALL_MODES,
        source=True,
        guarantee="exactly once; tables must be InnoDB",
        float_bits=False,
        stages_ahead=True,
        cannot_store=("nan", "infinity"),
        times=FOUR_DIGITS,
        max_character="\uffff",
    ),
)
MYSQL_CDC = SystemRecord(
    MySQLCDCConnection, BROKER, stream_source=f"{__name__}.cdc.source:MySQLChanges", extra="mysql-cdc"
)
SYSTEMS = (MYSQL, MYSQL_CDC)
