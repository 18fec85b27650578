"""The random index: which messages of a vhost's streams have a key, in files that are written
once, put in order once, and read by ranges (docs/formats/stream-index.md)."""
