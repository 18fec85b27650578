"""Rounds of the writing thread: what is written together, and who waits for it."""
