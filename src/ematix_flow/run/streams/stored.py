"""What the state of a stream holds, read with Spark's own source of states; the query that owns it may run meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.plan.stream.state import StatePlan
    from ematix_flow.run.streams.query import StateFolder


class StoredState:
    """The state of a query behind one of its batches."""

    def __init__(self, spark: SparkSession, folder: StateFolder, batch: int) -> None:
        self._spark = spark
        self._folder = folder
        self._batch = batch
        # What reads a state asks the coordinator of states, which begins with the queries of a session.
        self._queries = spark.streams

    def results(self, plan: StatePlan) -> DataFrame:
        """Return open windows or sessions as the state would give them out now."""
        return self._sessions(plan) if plan.operator == "session" else self._windows()

    def timestamps(self) -> DataFrame:
        """Return the moments of sessions: key, time in microseconds and values."""
        from pyspark.sql import functions as sf

        rows = sf.array_sort(sf.collect_list(sf.struct("number", "block")))
        texts = sf.array_join(sf.transform(rows, lambda row: row["block"]), "\n")
        return self._notes("e").groupBy("key", "ts").agg(texts.alias("block"))

    def open_timestamps(self, sessions: StatePlan, watermark: int) -> DataFrame:
        """Return key and time of the moments of sessions that a watermark has not closed."""
        from pyspark.sql import functions as sf

        still = self._sessions(sessions).where(sf.col("end") > watermark)
        spans = still.select("key", "start", sf.expr(f"end - {sessions.gap}").alias("last"))
        return self.timestamps().join(spans, "key").where("ts BETWEEN start AND last").select("key", "ts")

    def buffered(self) -> DataFrame:
        """Return the rows of a join that wait for partners: side, key, time, whether they had one, and their values."""
        from pyspark.sql import functions as sf

        left, right = (self._notes(side[0]).withColumn("side", sf.lit(side)) for side in ("left", "right"))
        rows = left.union(right)
        matched = sf.col("block").startswith("1").alias("matched")
        return rows.select("side", "key", "ts", matched, sf.expr("substring(block, 2)").alias("block"))

    def firsts(self) -> DataFrame:
        """Return the keys that were there before, with the time of the row that was loaded."""
        from pyspark.sql import functions as sf

        return self._variable("seen").select(sf.col("key.value").alias("key"), sf.col("value.value").alias("ts"))

    def _windows(self) -> DataFrame:
        from pyspark.sql import functions as sf

        blocks = self._variable("blocks").select(
            sf.col("key.value").alias("key"), sf.col("list_element.value").alias("block")
        )
        start, end = (sf.split("key", ":")[number].cast("bigint") for number in (0, 1))
        return blocks.select(sf.lit("close").alias("kind"), "key", start.alias("start"), end.alias("end"), "block")

    def _sessions(self, plan: StatePlan) -> DataFrame:
        """Return the moments of every key as sessions, by the rule of the operator."""
        from pyspark.sql import functions as sf

        alone = "named_struct('first', x.ts, 'last', x.ts, 'blocks', array(x.block))"
        last = "element_at(known, -1)"
        joins = f"size(known) > 0 AND x.ts - {last}.last <= {plan.gap} AND x.ts - {last}.first <= {plan.longest}"
        longer = f"named_struct('first', {last}.first, 'last', x.ts, 'blocks', concat({last}.blocks, array(x.block)))"
        folded = (
            "aggregate(sort_array(collect_list(struct(ts, block))),"
            " cast(array() AS array<struct<first: bigint, last: bigint, blocks: array<string>>>),"
            f" (known, x) -> IF({joins}, concat(slice(known, 1, size(known) - 1), array({longer})),"
            f" concat(known, array({alone}))))"
        )
        sessions = self.timestamps().groupBy("key").agg(sf.expr(folded).alias("sessions"))
        each = sessions.select("key", sf.explode("sessions").alias("one"))
        return each.select(
            sf.lit("close").alias("kind"),
            "key",
            sf.col("one.first").alias("start"),
            sf.expr(f"one.last + {plan.gap}").alias("end"),
            sf.array_join("one.blocks", "\n").alias("block"),
        )

    def _notes(self, kind: str) -> DataFrame:
        """Return what is remembered of a kind: key, number, time and text; each is a line of its key, behind a first one."""
        from pyspark.sql import functions as sf

        lines = self._variable("notes").select(
            sf.col("key.value").alias("key"), sf.posexplode(sf.split("value.value", "\n")).alias("number", "line")
        )
        time = sf.expr("cast(substring(substring_index(line, ' ', 1), 2) AS bigint)").alias("ts")
        block = sf.expr("substring(line, locate(' ', line) + 1)").alias("block")
        return lines.where(sf.col("line").startswith(kind)).select("key", "number", time, block)

    def _variable(self, name: str) -> DataFrame:
        reader = self._spark.read.format("statestore").option("path", self._folder.checkpoint)
        return reader.option("stateVarName", name).option("batchId", self._batch).load()
