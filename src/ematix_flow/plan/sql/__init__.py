"""The SQL of modes, shapes and tables as sqlglot trees, rendered for each dialect."""
