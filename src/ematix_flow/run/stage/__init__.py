"""Rows into staging: conformed by tasks, which report and never commit."""
