"""Driving executions: the scheduler, claims, the driver, slots."""
