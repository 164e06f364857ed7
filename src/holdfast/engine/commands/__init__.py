"""Commands: the inbox, what each one does, what may be refused."""
