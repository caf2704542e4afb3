"""Kafka without a plan: topics are read in a group and written, in one transaction per write on request."""

from __future__ import annotations

import contextlib
import time
import uuid
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.broker.client import FORMATS, Backend, Limits, batch_of, payloads_of
from ematix_flow.connect.formats.codecs import decoder_of, schema_encoder
from ematix_flow.connect.kafka.cluster import Kafka, broker_error, require_kafka
from ematix_flow.connect.kafka.settings import client_settings
from ematix_flow.connect.schema_registry.base import SCHEMA_FORMATS
from ematix_flow.connect.schema_registry.open import registry_of
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import DeclareError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

_SEMANTICS = ("at_least_once", "exactly_once")
_SECONDS = 30.0


class KafkaBackend(Backend):
    """A producer and a member of a group, both made when they are first needed."""

    formats: ClassVar[tuple[str, ...]] = (*FORMATS, *SCHEMA_FORMATS)

    def __init__(self, connection: KafkaConnection, limits: Limits, transactional_id: str) -> None:
        require_kafka()
        super().__init__(limits, connection.payload_format or "json")
        self._connection = connection
        self._decoder = (
            decoder_of(self._format, registry_of(connection), connection.name)
            if self._format in SCHEMA_FORMATS
            else None
        )
        self._transactional_id = transactional_id
        self._producer: Any = None
        self._consumer: Any = None
        self._leave: Callable[[], Any] | None = None
        """Leaves the group; called at the end of the process, too, where no caller has closed this."""
        self._topic = ""
        self._errors: deque[Any] = deque(maxlen=8)
        self._pending: dict[tuple[str, int], int] = {}
        self._received: dict[tuple[str, int], tuple[int, int]] = {}
        self._at_end: set[tuple[str, int]] = set()

    @classmethod
    def open(  # noqa: PLR0913 - the public contract
        cls,
        bootstrap_servers: str,
        *,
        group_id: str | None = None,
        payload_format: str | None = None,
        schema_registry_url: str | None = None,
        delivery_semantics: str | None = None,
        transactional_id: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_scram_username: str | None = None,
        sasl_scram_password: str | None = None,
        sasl_scram_mechanism: str | None = None,
        security_protocol: str | None = None,
        tls_cert_path: str | None = None,
        tls_key_path: str | None = None,
        tls_ca_path: str | None = None,
        msk_iam_region: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        batch_window_ms: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> KafkaBackend:
        """Return the backend; the cluster is not contacted yet."""
        if delivery_semantics not in (None, *_SEMANTICS):
            raise DeclareError(f"delivery_semantics {delivery_semantics!r} is not one of {', '.join(_SEMANTICS)}")
        if (delivery_semantics == "exactly_once") != bool(transactional_id):
            raise DeclareError("delivery_semantics 'exactly_once' and transactional_id belong together")
        connection = KafkaConnection(
            "direct",
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            payload_format=payload_format,
            schema_registry_url=schema_registry_url,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_scram_username=sasl_scram_username,
            sasl_scram_password=sasl_scram_password,
            sasl_scram_mechanism=sasl_scram_mechanism,
            security_protocol=security_protocol,
            tls_cert_path=tls_cert_path,
            tls_key_path=tls_key_path,
            tls_ca_path=tls_ca_path,
            msk_iam_region=msk_iam_region,
        )
        if payload_format in SCHEMA_FORMATS and not schema_registry_url:
            raise DeclareError(f"payload_format {payload_format!r} needs a schema registry: schema_registry_url")
        limits = Limits.of(batch_size, batch_bytes, idle_timeout_ms, batch_window_ms)
        return cls(connection, limits, transactional_id or "")

    def ping(self) -> None:
        """Check that the cluster answers and lets us in."""
        Kafka(self._connection).probe()

    def write_arrow_stream(self, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Send every row to a topic; with a transaction all of them are seen, with the offsets read up to, or none."""
        kafka = require_kafka()
        producer = self._producing()
        try:
            if not self._transactional_id:
                return self._sent(producer, dest, batches)
            producer.begin_transaction()
            count = self._sent(producer, dest, batches)
            if self._pending:
                offsets = self._offsets_to_commit()
                producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _SECONDS)
            producer.commit_transaction(_SECONDS)
        except kafka.KafkaException as error:
            self._drop_producer()
            raise broker_error(self._connection, error, self._errors) from error
        except BaseException:
            self._drop_producer()
            raise
        self._pending.clear()
        return count

    def commit_offsets(self) -> None:
        """Commit to the group how far the batches that were handed out go."""
        if not self._pending:
            return
        try:
            offsets = self._consumer.commit(offsets=self._offsets_to_commit(), asynchronous=False)
        except require_kafka().KafkaException as error:
            raise broker_error(self._connection, error, self._errors) from error
        for offset in offsets:
            if offset.error is not None:
                raise broker_error(self._connection, offset.error)
        self._pending.clear()

    def close(self) -> None:
        """Leave the group and end the producer; what was not committed is read again."""
        self._drop_producer()
        if self._leave is not None:
            self._leave()
        self._consumer, self._topic, self._leave = None, "", None

    def _receive(self, query: str, count: int, seconds: float) -> Sequence[bytes]:
        """Silence counts once every partition was read to its end: before that it is a broker that is slow to answer."""
        consumer = self._consuming(query)
        begun = idle_since = time.monotonic()
        while True:
            payloads = self._polled(consumer, count, max(idle_since + seconds - time.monotonic(), 0))
            if payloads:
                return payloads
            if self._read_to_the_end(consumer):
                if time.monotonic() >= idle_since + seconds:
                    return []
                continue
            idle_since = time.monotonic()
            if idle_since > begun + _SECONDS:
                raise broker_error(self._connection, None, self._errors)

    def _polled(self, consumer: Any, count: int, seconds: float) -> list[bytes]:
        kafka = require_kafka()
        try:
            first = consumer.poll(seconds)
            messages = [] if first is None else [first, *consumer.consume(count - 1, 0)]
        except kafka.KafkaException as error:
            raise broker_error(self._connection, error, self._errors) from error
        payloads = []
        for message in messages:
            partition = message.topic(), message.partition()
            if self._is_end(message):
                continue
            self._at_end.discard(partition)
            begin, _ = self._received.get(partition, (message.offset(), 0))
            self._received[partition] = begin, message.offset() + 1
            payloads.append(message.value() or b"")
        return payloads

    def _is_end(self, message: Any) -> bool:
        """Return whether this reports the end of a partition, and remember it."""
        error = message.error()
        if error is None:
            return False
        if error.code() != require_kafka().KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's only name for it
            raise broker_error(self._connection, error, self._errors)
        self._at_end.add((message.topic(), message.partition()))
        return True

    def _read_to_the_end(self, consumer: Any) -> bool:
        return all((assigned.topic, assigned.partition) in self._at_end for assigned in consumer.assignment())

    def _rows(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        if self._decoder is None:
            return super()._rows(payloads)
        rows = []
        for payload in payloads:
            row = self._decoder.read(payload)
            if isinstance(row, str):
                raise RunError(f"a message cannot be read: {row}")
            rows.append(row)
        return batch_of(rows)

    def _payloads(self, dest: str, batch: pa.RecordBatch) -> list[bytes]:
        if self._decoder is None:
            return payloads_of(batch, self._format)
        import pyarrow as pa

        return schema_encoder(self._connection, dest).encode(pa.Table.from_batches([batch]))

    def _hand_out(self) -> None:
        self._pending |= {partition: end for partition, (_, end) in self._received.items()}
        self._received.clear()

    def _requeue(self) -> None:
        for (topic, partition), (first, _) in self._received.items():
            self._seek(topic, partition, first)
        self._received.clear()

    def _sent(self, producer: Any, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        failed: list[Any] = []
        count = 0
        for batch in batches:
            for payload in self._payloads(dest, batch):
                self._send(producer, dest, payload, failed)
                count += 1
        waiting = producer.flush(_SECONDS)
        if failed or waiting:
            raise broker_error(self._connection, failed[0] if failed else None, self._errors)
        return count

    def _send(self, producer: Any, dest: str, payload: bytes, failed: list[Any]) -> None:
        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        while True:
            try:
                producer.produce(dest, payload, on_delivery=delivered)
            except BufferError:  # full: let some of it arrive first
                producer.poll(1)
                continue
            producer.poll(0)
            return

    def _producing(self) -> Any:
        if self._producer is None:
            settings = self._settings() | {"enable.idempotence": True}
            if self._transactional_id:
                settings["transactional.id"] = self._transactional_id
            kafka = require_kafka()
            try:
                self._producer = kafka.Producer(settings)
                if self._transactional_id:
                    self._producer.init_transactions(_SECONDS)
            except kafka.KafkaException as error:
                self._producer = None
                raise broker_error(self._connection, error, self._errors) from error
        return self._producer

    def _drop_producer(self) -> None:
        """Forget the producer: after an error it is unknown what it still holds, and the next one fences it off."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            if self._transactional_id:
                _abort(producer)

    def _consuming(self, topic: str) -> Any:
        """Return the member of the group, once its partitions have been assigned."""
        if self._consumer is None:
            reading = {
                "group.id": self._connection.group_id or f"ematix-flow-{uuid.uuid4().hex}",
                "auto.offset.reset": self._connection.auto_offset_reset or "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
            self._consumer = require_kafka().Consumer(self._settings() | reading)
            # The group would wait for a member that is gone until its time is over, and so would the next one to come.
            self._leave = weakref.finalize(self, self._consumer.close)
        if topic != self._topic:
            self._join(topic)
        return self._consumer

    def _join(self, topic: str) -> None:
        """Enter the group for a topic and wait for the share that the others leave, which may be nothing."""
        Kafka(self._connection).topic(topic)
        shared: list[Any] = []
        at_end = self._at_end

        def assigned(_: Any, partitions: Any) -> None:
            # Without a way back to this object, which would keep it from being collected.
            shared.append(partitions)
            at_end.clear()

        self._consumer.subscribe([topic], on_assign=assigned)
        end = time.monotonic() + _SECONDS
        while not shared:
            if time.monotonic() > end:
                raise broker_error(self._connection, None, self._errors)
            early = self._consumer.poll(0.1)
            if early is not None and not self._is_end(early):
                self._seek(early.topic(), early.partition(), early.offset())
        self._topic = topic

    def _seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(require_kafka().TopicPartition(topic, partition, offset))
        self._at_end.discard((topic, partition))

    def _settings(self) -> dict[str, Any]:
        return client_settings(self._connection) | {"error_cb": self._errors.append, "log_level": 0}

    def _offsets_to_commit(self) -> list[Any]:
        topic_partition = require_kafka().TopicPartition
        return [topic_partition(topic, partition, end) for (topic, partition), end in self._pending.items()]


def _abort(producer: Any) -> None:
    """End an open transaction; where that fails the broker ends it when its time is over."""
    with contextlib.suppress(require_kafka().KafkaException):
        producer.abort_transaction(_SECONDS)
