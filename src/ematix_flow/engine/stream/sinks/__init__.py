"""Where a stream writes: tables and brokers, from messages and from files."""
