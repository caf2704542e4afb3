"""AWS Kinesis."""
