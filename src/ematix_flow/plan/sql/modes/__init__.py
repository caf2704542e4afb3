"""The statements of each load mode."""
