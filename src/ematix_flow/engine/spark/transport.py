"""Opens the transport of staged rows to this machine from executors that cannot write to its disk, as the plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ematix_flow.engine.spark.session import spark_settings
from ematix_flow.errors import DeclareError, FlowError
from ematix_flow.plan.remote_tasks import STORE

if TYPE_CHECKING:
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.run.stage.transport import Carrier

_BUCKETS = ("object_store_s3", "object_store_gcs", "object_store_azure")


def carrier_of(plan: TargetPlan, spec: StageSpec) -> Carrier | None:
    """Return what carries the parts of a load; none where tasks stage where the target reads."""
    choice = plan.stage.carried
    if choice is None:
        return None
    from ematix_flow.run.stage.transport import Carrier, sweep

    if choice.value != STORE:
        return Carrier(spec.name, spec.folder)
    store = staging_store(spark_settings().staging or "")
    sweep(store)
    return Carrier(spec.name, spec.folder, store)


def staging_store(text: str) -> Store:
    """Return the bucket that an address or the name of a connection means."""
    from ematix_flow.commit.runlog.objects.location import bucket_at
    from ematix_flow.commit.runlog.urls import read_address
    from ematix_flow.connect.config.lookup import resolve_connection
    from ematix_flow.connect.registry import target_of

    try:
        address = read_address(text)
        bucket = resolve_connection(text) if address is None else bucket_at(address, "staging")
    except KeyError:
        raise _no_bucket() from None
    except FlowError as error:
        raise DeclareError(f"the Spark setting `staging` cannot be used: {error.what}", hint=error.hint) from None
    if bucket.kind not in _BUCKETS:
        raise _no_bucket()
    return cast("Store", cast("Any", target_of(bucket)).store)


def _no_bucket() -> DeclareError:
    return DeclareError(
        "the Spark setting `staging` is no bucket.",
        hint="write s3://bucket/prefix, gs://bucket/prefix, azure://account/container/prefix or the name of a connection to one.",
    )
