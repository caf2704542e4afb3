"""Feature views: values as of an instant, current values, training sets and what the registry knows."""
