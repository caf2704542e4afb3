"""What people and programs read about a project and its history, as plain data; commands and pages share it."""
