"""How, as data: pure functions from declarations, history and now to a Plan."""
