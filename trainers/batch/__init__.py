"""The largest batch that fits into memory, and the search for it."""
