"""The rows of the storage engine: each figure beside its target and its physical ceiling."""
