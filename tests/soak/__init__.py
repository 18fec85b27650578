"""Half an hour of everything at once: see `tests.soak.__main__`."""
