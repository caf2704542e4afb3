"""MySQL and MariaDB."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("mysql", database=f"{__name__}.database:MySQL"),)
