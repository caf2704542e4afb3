"""Shapes, SQL of streams and functions of the user, where rows are."""
