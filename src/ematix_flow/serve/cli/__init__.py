"""The flow command: parse, call, print."""
