"""A system with every role of batch pipelines; files, lakes and brokers have some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.catalog import Catalog
from ematix_flow.connect.base.source import SqlSource
from ematix_flow.connect.base.target import SqlTarget

if TYPE_CHECKING:
    from ematix_flow.connect.base.metadata_store import MetadataStore


class Database(SqlSource, SqlTarget, Catalog):
    """A SQL database: a source, a target and a catalog, which keeps our own tables too."""

    @property
    def metadata_store(self) -> MetadataStore:
        """Return this database: it keeps our own tables itself."""
        return self
