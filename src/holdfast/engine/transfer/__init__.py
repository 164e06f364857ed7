"""Executions in and out: forks, export, import, checkpoints, resume checks."""
