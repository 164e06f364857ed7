"""The engine broken on purpose, to show that the checks can fail."""
