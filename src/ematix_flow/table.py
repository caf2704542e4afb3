"""Public names of table declarations; nothing else is defined here."""

from ematix_flow.declare.table.class_body import Column, ManagedTable, Table, table, table_of

__all__ = ["Column", "ManagedTable", "Table", "table", "table_of"]
