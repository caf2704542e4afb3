"""Change events of databases: envelopes, the order of a log, and values as connectors write them."""
