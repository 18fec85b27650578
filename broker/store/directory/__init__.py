"""The data directory: its lock, journals, the reserve of space, snapshots for backups."""
