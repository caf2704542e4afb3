"""Pipelines between cloud warehouses: read, transform, stage and commit, in this order."""
