"""The query that turns rows of a source into the columns of a target."""
