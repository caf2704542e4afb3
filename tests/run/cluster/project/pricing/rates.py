"""Half of the package."""

RATE = 1.5
