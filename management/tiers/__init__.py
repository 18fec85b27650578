"""The tiers process: puts sealed segments of streams into the object store, and fetches from it
what is read."""
