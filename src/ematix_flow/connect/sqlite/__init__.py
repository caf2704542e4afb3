"""SQLite."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("sqlite", database=f"{__name__}.database:SQLite"),)
