"""Recorded executions against new code."""
