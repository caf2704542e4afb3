"""Schemas of messages: Confluent and AWS Glue."""
