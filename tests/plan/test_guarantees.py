from __future__ import annotations

import pytest

from ematix_flow.connect.base.sink import AT_LEAST_ONCE, EXACTLY_ONCE
from ematix_flow.errors import PlanError
from ematix_flow.plan.explain.guarantees import all_guarantees, guarantee_of, refuse_unguaranteed, sent_as


@pytest.mark.parametrize("source", ["kafka", "kinesis", "object_store_s3", "delta_local", "rabbitmq", "pubsub"])
@pytest.mark.parametrize("target", ["postgres", "iceberg", "object_store_local", "kafka"])
def test_tables_and_kafka_have_each_message_once(source: str, target: str) -> None:
    assert guarantee_of(source, target).level == EXACTLY_ONCE
    refuse_unguaranteed(source, target, EXACTLY_ONCE)


@pytest.mark.parametrize("target", ["rabbitmq", "pubsub", "kinesis"])
def test_exactly_once_is_refused_where_it_cannot_be_kept(target: str) -> None:
    refuse_unguaranteed("kafka", target, "auto")
    refuse_unguaranteed("kafka", target, AT_LEAST_ONCE)
    with pytest.raises(PlanError, match=f"cannot be kept from kafka to {target}") as error:
        refuse_unguaranteed("kafka", target, EXACTLY_ONCE)
    assert "exactly once: table, kafka; at least once: rabbitmq, pubsub, kinesis" in str(error.value)


def test_a_queue_without_ids_is_said_to_deliver_twice() -> None:
    assert "message_id" in guarantee_of("rabbitmq", "postgres").reason
    assert "message_id" not in guarantee_of("kafka", "postgres").reason


def test_only_kafka_is_sent_to_in_two_ways() -> None:
    assert sent_as("kafka", "auto") == sent_as("kafka", EXACTLY_ONCE) == EXACTLY_ONCE
    assert sent_as("kafka", AT_LEAST_ONCE) == AT_LEAST_ONCE
    assert sent_as("kinesis", "auto") == AT_LEAST_ONCE
    assert guarantee_of("kafka", "postgres", AT_LEAST_ONCE).level == EXACTLY_ONCE


def test_the_table_has_every_pair_once() -> None:
    rows = list(all_guarantees())
    assert len({row[:3] for row in rows}) == len(rows) == 8 * 6
    assert sum(row[3].level == EXACTLY_ONCE for row in rows) == 8 * 2
