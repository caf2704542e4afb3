"""Formats of files and messages: readers and writers."""
