"""Bodies that several queues share: blocks, files, references, collection, recovery."""
