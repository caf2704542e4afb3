"""What programs call: connections, one-off loads, runs by name and the test helpers."""
