"""Shipped to users: the contract suite that every store must pass, and the samples it is made of."""
