"""Driving an execution in front of a person: questions, signals, step by step."""
