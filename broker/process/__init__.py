"""What every process needs: its life, its log, its garbage collector."""
