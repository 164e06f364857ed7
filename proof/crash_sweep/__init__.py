"""A real process killed at every point of its work, restarted, and compared."""
