"""Runs the named pipelines in one process, so that they share a session, and prints what became of each as JSON."""

from __future__ import annotations

import importlib
import json
import sys


def main(names: list[str]) -> None:
    """Run one after the other; an error is a result too."""
    module = importlib.import_module("shop")
    results = {}
    for name in names:
        try:
            results[name] = getattr(module, name)()
        except Exception as error:  # noqa: BLE001 - what a person would read
            results[name] = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
