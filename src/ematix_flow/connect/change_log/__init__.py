"""What sources share that read the log of a database: names of tables, envelopes and messages; no database is known here."""
