"""`notify.send`: messages to people."""
