"""Crash tests: processes are killed at named and at random moments, and the target is compared with a plain model."""
