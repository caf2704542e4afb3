"""Declared tables: class bodies, columns, types, partitions and maintenance."""
