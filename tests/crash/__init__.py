"""Crash tests: kill the broker under load, start it again, compare with what clients know."""
