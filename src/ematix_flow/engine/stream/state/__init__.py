"""The state of streams: where it is, what it holds, and how it is built anew or for a time of the past."""
