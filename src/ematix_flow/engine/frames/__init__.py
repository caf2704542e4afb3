"""Frames of other libraries: what systems hold as frames, and frames as loads."""
