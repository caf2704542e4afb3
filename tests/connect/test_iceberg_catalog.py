from __future__ import annotations

from typing import Any

import pytest

from ematix_flow.connect.iceberg.catalog import IcebergCatalog
from ematix_flow.declare.connection.databases import IcebergConnection


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"catalog_type": "hadoop", "warehouse": "lake"}, True),
        ({"catalog_type": "hadoop", "warehouse": "/srv/lake"}, False),
        ({"catalog_type": "hadoop", "warehouse": "file:///srv/lake"}, False),
        ({"catalog_type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:catalog.db"}, True),
        ({"catalog_type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:/srv/catalog.db"}, False),
        ({"catalog_type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:postgresql://host/db"}, False),
    ],
)
def test_relative_paths_need_a_java_in_the_folder_of_the_command(given: dict[str, Any], own: bool) -> None:
    assert IcebergCatalog(IcebergConnection("lake", **given)).spark_requirements.own is own
