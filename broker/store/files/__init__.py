"""Files on disk: every write and sync passes `disk`; records, their scan, holes, open files."""
