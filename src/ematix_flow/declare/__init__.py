"""What the user wrote, as frozen values; no I/O and no Spark in here."""
