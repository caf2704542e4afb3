"""The interfaces of a system, and what all systems share; no system is named here."""
