"""What a load would do: preview, dry run, validate, diff, and plans that are applied later."""
