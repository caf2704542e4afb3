"""A package beside the pipelines, which a function imports when it is called."""

from pricing.rates import RATE as RATE
