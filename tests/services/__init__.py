"""Real servers for tests, started as ordinary users in temporary folders; no service manager and no containers."""
