"""Routes of the JSON API, a module for each subject; facts come from the engine."""
