"""One file per group of commands."""
