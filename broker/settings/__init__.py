"""How a process is configured: the table of settings, their sources, fixed limits."""
