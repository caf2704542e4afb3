"""What is too long for a screen, such as the stack of a Java process: it goes to the logs of runs where these are kept, and is shown nowhere."""

from __future__ import annotations

import logging
from functools import cache


@cache
def detail_logger() -> logging.Logger:
    """Return the logger that hears details; without a handler of somebody who wants them they are dropped."""
    logger = logging.getLogger("ematix_flow.details")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def keep_detail(text: str) -> None:
    """Pass a detail on; whoever keeps it takes the secrets out."""
    detail_logger().error("%s", text.rstrip("\n"))
