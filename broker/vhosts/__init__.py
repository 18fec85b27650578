"""VHosts: what is defined in each, from its journal to the route of a message."""
