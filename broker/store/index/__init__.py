"""Where a shared body lies: in memory, or in LevelDB with Bloom filters."""
