"""Which changed lines of the store, the queues and the wire protocol the tests notice."""
