"""What clients and sinks of all brokers share."""
