"""A tool's call in a process of its own."""
