"""One step: admission, attempt, failure, resolution, waits."""
