"""The commands of `flow`, one module each: they parse, call the engine and print."""
