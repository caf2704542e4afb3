"""Turns a class body into a feature view: a table of versions by event time, with the readers of its values."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.class_body import ManagedTable, declared_class, table_of
from ematix_flow.declare.table.features import (
    Features,
    check_event_column,
    check_keys,
    check_online_name,
    check_version,
    positive,
)
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ematix_flow.declare.table.schema import Table
    from ematix_flow.errors import Origin

READERS = "ematix_flow.engine.features.read"


class FeatureView(ManagedTable):
    """Base of the classes that `@ematix.feature_view` makes; it reads values and holds none."""

    __abstract__: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        if not cls.__dict__.get("__abstract__", False):
            message = f"{cls.__name__} derives from FeatureView, which has no version for it"
            hint = (
                "leave the base out and decorate the class with @ematix.feature_view(schema=..., feature_version=...)."
            )
            raise DeclareTypeError(message, hint=hint, origin=caller_origin())
        super().__init_subclass__(**options)

    @classmethod
    def point_in_time(
        cls,
        conn: Any,
        *,
        entity_keys: Mapping[str, Any],
        as_of: datetime,
        columns: Sequence[str] | None = None,
    ) -> dict[str, Any] | None:
        """Return the values that one entity had at an instant, or None where it had none."""
        # Looked up at the call, so that declaring never loads what reading needs.
        readers = importlib.import_module(READERS)
        row: dict[str, Any] | None = readers.point_in_time(table_of(cls), conn, entity_keys, as_of, columns)
        return row

    @classmethod
    def historical_features(
        cls, conn: Any, *, spine: Any, columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the values for every row of the spine in its order, each as of the row's own instant."""
        rows: list[dict[str, Any]] = importlib.import_module(READERS).historical_features(
            table_of(cls), conn, spine, columns
        )
        return rows

    @classmethod
    def online_features(
        cls, conn: Any, *, entity_keys: Mapping[str, Any], columns: Sequence[str] | None = None
    ) -> dict[str, Any] | None:
        """Return the current values of one entity from the online store, or None where it has none."""
        readers = importlib.import_module(READERS)
        row: dict[str, Any] | None = readers.online_features(table_of(cls), conn, entity_keys, columns)
        return row


def feature_view(  # noqa: PLR0913 - the public keywords
    *,
    schema: str,
    feature_version: str,
    name: str | None = None,
    event_timestamp_column: str | None = None,
    ttl: timedelta | float | str | None = None,
    freshness_sla: timedelta | float | str | None = None,
    online: bool = False,
    description: str | None = None,
    owner: str | None = None,
) -> Callable[[type], type[FeatureView]]:
    """Return the decorator that turns a plain class into a feature view and registers its version."""
    origin = caller_origin()
    version = check_version(feature_version, origin)

    def declare(cls: type) -> type[FeatureView]:
        def with_features(table: Table) -> Table:
            features = Features(
                name=f"{table.qualified_name}.{version}",
                version=version,
                event_timestamp_column=event_timestamp_column,
                ttl=positive("ttl", ttl, origin),
                freshness_sla=positive("freshness_sla", freshness_sla, origin),
                online=bool(online),
                description=description,
                owner=owner,
            )
            _check(table, features, origin)
            PROJECT.add_feature_view(declared := replace(table, features=features))
            return declared

        return declared_class(cls, FeatureView, schema, name, finish=with_features)

    return declare


def view_of(declared: object) -> Table:
    """Return the table of a feature view, or refuse what is none."""
    table = table_of(declared)
    if table.features is None:
        message = f"{table.qualified_name} is a table and not a FeatureView"
        raise DeclareTypeError(message, hint="declare it with @ematix.feature_view(...).", origin=table.origin)
    return table


def _check(table: Table, features: Features, origin: Origin | None) -> None:
    where = table.qualified_name
    check_keys(where, table.primary_key, origin)
    types = {column.name: column.type.kind for column in table.columns}
    check_event_column(where, features.event_timestamp_column, types, origin)
    if features.event_timestamp_column in table.primary_key:
        message = f"event_timestamp_column={features.event_timestamp_column!r} of feature view {where} is an entity key"
        raise DeclareError(message, hint="a key names the entity; leave pk() out there.", origin=origin)
    if len(table.primary_key) == len(table.columns):
        message = f"feature view {where} declares keys and no feature"
        raise DeclareTypeError(message, hint="add a column that is no key.", origin=origin)
    if features.online:
        check_online_name(where, table.name, origin)
