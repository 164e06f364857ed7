"""`shell.run`: commands."""
