"""PostgreSQL."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("postgres", database=f"{__name__}.database:Postgres"),)
