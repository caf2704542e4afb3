"""A query of Structured Streaming that holds the state of one target of a stream; its owner says which ranges it reads.

Spark writes down which range a batch reads before it works on it, and keeps the state of every batch. So a batch that was
interrupted is worked out again from the same lines and the same state.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import PositionMovedError, StreamLostError
from ematix_flow.run.spark.errors import reason_of
from ematix_flow.run.streams.ranges import NO_RANGE, RangeQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.plan.stream.state import StatePlan

    Apply = Callable[[DataFrame, int, str], None]

STATE = "ematix.flow.StreamState"
"""Our Java class for what a query remembers."""

ERA = 62_135_596_800_000_000
"""Microseconds from the year 1 to 1970: the watermark of Spark begins with 0, so what it knows as time is later by that."""

RESET = "begin again: flow stream reset NAME --from ... --confirm-state-reset."
MOVED = f"if the target was moved, move it back, for its state goes by where it was; else {RESET}"

_NUMBER = re.compile(r"\d+")
_ANY = re.compile(r".+")
_NAME = re.compile(r"0|\d+-[0-9a-f]{8}")


def range_number(name: str) -> int:
    """Return the number of a range, which is one more than that of the range before it."""
    return int(name.partition("-")[0])


class StateFolder:
    """The folder in which a target's state, and the lines of its last ranges, are kept; on any file system of Spark."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the way to Java
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    @property
    def input(self) -> str:
        """Return where the lines of ranges are."""
        return f"{self.path}/input"

    @property
    def checkpoint(self) -> str:
        """Return where Spark keeps the state."""
        return f"{self.path}/query"

    def query_id(self) -> str:
        """Return the id of the query whose state this is; empty where there is none yet."""
        text = self.read(f"{self.checkpoint}/metadata")
        return "" if text is None else str(json.loads(text)["id"])

    def range_of(self, batch: int) -> str | None:
        """Return the name of the range that a batch reads; None where Spark has not written it down."""
        text = self.read(f"{self.checkpoint}/offsets/{batch}")
        if text is None:
            return None
        name = (text.strip().splitlines() or [""])[-1]
        if not _NAME.fullmatch(name):
            raise damaged(self.path, f"what batch {batch} reads is not written there in whole")
        return name

    def watermark_of(self, batch: int) -> int | None:
        """Return up to which time a batch took everything for complete, in microseconds; None before there was a time."""
        lines = (self.read(f"{self.checkpoint}/offsets/{batch}") or "").strip().splitlines()
        try:
            millis = int(json.loads(lines[1])["batchWatermarkMs"])
        except (IndexError, ValueError, KeyError, TypeError):
            raise damaged(self.path, f"the time of batch {batch} is not written there in whole") from None
        return millis * 1000 - ERA if millis else None

    def last_batch(self) -> int | None:
        """Return the last batch that was begun; None before the first."""
        return max(map(int, self._names(f"{self.checkpoint}/offsets", _NUMBER)), default=None)

    def last_done(self) -> int | None:
        """Return the last batch that was finished; None before the first."""
        return max(map(int, self._names(f"{self.checkpoint}/commits", _NUMBER)), default=None)

    def ranges(self) -> list[str]:
        """Return the names of the ranges whose lines are here."""
        return sorted(self._names(self.input, _NAME))

    def folders(self, path: str) -> list[str]:
        """Return the names of what is in a folder; none where it is not there."""
        return sorted(self._names(path, _ANY))

    def sizes(self, path: str) -> dict[str, int]:
        """Return the files of a folder with lines, and their sizes; none where the folder is gone."""
        system, at = self._at(path)
        if not system.exists(at):
            return {}
        files = [(str(one.getPath().getName()), int(one.getLen())) for one in system.listStatus(at)]
        return {name: size for name, size in files if name.startswith("part-") and size}

    def read(self, path: str) -> str | None:
        """Return the text of a file; None where it does not exist."""
        system, at = self._at(path)
        if not system.exists(at):
            return None
        stream = system.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        except Exception as error:
            if "ChecksumException" in str(error):
                raise damaged(self.path, f"{path.removeprefix(f'{self.path}/')} is not as it was written") from error
            raise
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file; one of a moment before is replaced."""
        system, at = self._at(path)
        stream = system.create(at, True)  # noqa: FBT003 - Java has no names for it
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def remove(self, path: str) -> None:
        """Remove a file or folder, where there is one."""
        system, at = self._at(path)
        system.delete(at, True)  # noqa: FBT003 - Java has no names for it

    def _names(self, path: str, pattern: re.Pattern[str]) -> list[str]:
        system, at = self._at(path)
        if not system.exists(at):
            return []
        names = [str(one.getPath().getName()) for one in system.listStatus(at)]
        return [name for name in names if pattern.fullmatch(name)]

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at


class StateQuery(RangeQuery):
    """The query of one target; every batch of it is handed to `apply`, with its number and the name of its range."""

    def __init__(
        self, spark: SparkSession, folder: StateFolder, plan: StatePlan, apply: Apply, *, finishes: bool = True
    ) -> None:
        super().__init__(spark, folder.input, folder.checkpoint, finishes=finishes)
        self._folder = folder
        self._plan = plan
        self._apply = apply

    def start(self) -> None:
        """Start the query where it stopped; a batch that was interrupted is handed over again."""
        last = self._folder.last_batch()
        self._start(NO_RANGE if last is None else self._folder.range_of(last) or NO_RANGE)

    def _translated(self, error: Exception) -> Exception:
        return _of_state(error, self._folder)

    @property
    def measured_bytes(self) -> int:
        """Return how large the state was after the last batch, in memory and in files; 0 before that is known."""
        progress: Any = None if self._query is None else self._query.lastProgress
        operators = [] if progress is None else progress.stateOperators
        return sum(
            int(one.memoryUsedBytes) + int(dict(one.customMetrics).get("rocksdbSstFileSize", 0)) for one in operators
        )

    def _load(self, results: DataFrame, batch: int) -> None:
        self._apply(results, batch, self._folder.range_of(batch) or NO_RANGE)

    def _results(self) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sf

        values = self._lines(events=True)
        watermark = sf.timestamp_micros(sf.col("watermark") + ERA)
        timed = values.withColumn("watermark", watermark).withWatermark("watermark", "0 seconds")
        events: Any = timed.select("key", "side", "start", "end", "ts", "block")
        plan = self._plan
        results = self._java.call(
            STATE,
            "apply",
            events._jdf,  # noqa: SLF001 - the way to Java
            plan.operator,
            plan.allowed,
            plan.gap,
            plan.longest,
            plan.least,
            plan.most,
            plan.outer,
        )
        return DataFrame(results, self._spark)


_OVERTAKEN = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Concurrent update to the log",
    "Multiple streaming queries are concurrently using",
)
"""How Spark reports that somebody else has written down a batch that it wanted to begin, or to finish."""

_DAMAGED = (
    "CANNOT_LOAD_STATE_STORE",
    "Malformed",
    "Incomplete log file",
    "MISSING_METADATA_FILE",
    "batch doesn't exist",
)
"""How Spark reports a checkpoint that is not whole."""

_LOST_FILE = ("FileNotFoundException", "ChecksumException")
"""How Java reports a file that is gone or cut; whose it is the path says."""


def damaged(path: str, what: str) -> StreamLostError:
    """Return the error for a folder in which something is not as it was written."""
    return StreamLostError(f"the state of the stream in {path} is damaged: {what}", hint=RESET)


def _of_state(error: Exception, folder: StateFolder) -> Exception:
    """Return an error of Spark as one for people, where it is about the folder of the state."""
    text = str(error)
    if any(sign in text for sign in _OVERTAKEN):
        message = f"the state of the stream in {folder.path} has moved on"
        return PositionMovedError(message, hint="another process runs this stream; nothing was changed.")
    reason = reason_of(error)
    lost = folder.path in text and any(sign in text for sign in _LOST_FILE)
    if lost or any(sign in text for sign in _DAMAGED):
        return damaged(folder.path, str(reason).splitlines()[0])
    return reason if isinstance(reason, Exception) else error
