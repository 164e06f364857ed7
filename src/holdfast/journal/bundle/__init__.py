"""One execution and its children as one portable file."""
