"""A queue's messages: segments in memory and on disk, acks, damage, recovery."""
