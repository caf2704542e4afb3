"""Names the jobs of Spark after the work that they do, for readers of Spark's pages; changes nothing else."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"

_description: ContextVar[str] = ContextVar("words", default="")
_lock = threading.Lock()
_at_work: WeakKeyDictionary[SparkSession, list[str]] = WeakKeyDictionary()
"""What each session on a Connect server is doing: it has one description for all its threads."""


@contextmanager
def describing(job_text: str) -> Iterator[None]:
    """Let jobs of this block, in this thread, be described by these words."""
    before = _description.set(job_text)
    try:
        yield
    finally:
        _description.reset(before)


def description() -> str:
    """Return the words for jobs of this thread."""
    return _description.get()


@contextmanager
def described(spark: SparkSession) -> Iterator[None]:
    """Let the jobs of a Connect session carry the description of this thread, and those of other threads on it."""
    from ematix_flow.run.spark.session import shows_jobs

    job_text = _description.get()
    if not job_text or not shows_jobs():
        yield
        return
    _change(spark, job_text, joins=True)
    try:
        yield
    finally:
        _change(spark, job_text, joins=False)


def _change(spark: SparkSession, job_text: str, *, joins: bool) -> None:
    with _lock:
        at_work = _at_work.setdefault(spark, [])
        (at_work.append if joins else at_work.remove)(job_text)
        text = ", ".join(dict.fromkeys(at_work))
    if text:  # what is left to do after staging keeps the last description
        spark.conf.set(DESCRIPTION, text)
