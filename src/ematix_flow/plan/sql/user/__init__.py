"""SQL that a user wrote: what it reads, and how it is rewritten."""
