"""A Spark that stays warm between commands: one server per user, environment and settings, joined through Spark Connect."""
