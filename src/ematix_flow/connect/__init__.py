"""Where data lives: one file per system, each with settings, capabilities, read, stage, commit and probe."""
