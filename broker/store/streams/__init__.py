"""A stream's segments: offsets, cursors of readers, recovery."""
