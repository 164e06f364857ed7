"""`search.web`: providers and a local index."""
