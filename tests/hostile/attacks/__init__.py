"""Attacks for `make hostile`, one function each. It returns what it came to, in a few words, and
raises `AssertionError` where the appliance let through what it should refuse."""
