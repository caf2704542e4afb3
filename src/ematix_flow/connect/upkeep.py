"""What a system gives for its tables besides loads: how it can divide them."""

from __future__ import annotations

from typing import ClassVar


class Upkeep:
    """The part of a system that is about the shape of its tables; a system that says nothing divides nothing."""

    partition_transforms: ClassVar[tuple[str, ...] | None] = None
    """What partitions can be made of besides columns; None where tables have no partitions."""
