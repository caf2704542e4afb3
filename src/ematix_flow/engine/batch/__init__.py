"""Batch loads: inspect, plan, expand, stage, commit and clean up."""
