"""Requests to addresses of the user, and which hosts they may reach."""
