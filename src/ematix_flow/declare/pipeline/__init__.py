"""Declared batch pipelines: options, targets, transforms and handles."""
