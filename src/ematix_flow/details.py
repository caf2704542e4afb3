"""What is too long for a screen, such as the stack of a Java process: it goes to the captured logs of runs only."""

from __future__ import annotations

import logging
from functools import cache


@cache
def detail_logger() -> logging.Logger:
    """Return the logger of details; without a handler they are dropped."""
    logger = logging.getLogger("ematix_flow.details")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def keep_detail(text: str) -> None:
    """Pass a detail on; the handler that stores it removes secrets."""
    detail_logger().error("%s", text.rstrip("\n"))
