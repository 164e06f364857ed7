"""Subprocesses that never outlive the engine, and their limits."""
