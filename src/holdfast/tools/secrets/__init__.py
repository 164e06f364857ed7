"""Secrets: where they come from, and their redaction."""
