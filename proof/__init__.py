"""How Holdfast tests itself beyond the daily tests; `make prove` runs all of it."""
