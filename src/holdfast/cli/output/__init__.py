"""What the command line prints: the live view, pages, trees, texts."""
