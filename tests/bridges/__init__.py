"""Shovels: real brokers, and the process that runs them."""
