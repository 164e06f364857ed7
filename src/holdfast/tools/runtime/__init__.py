"""What surrounds a call: threads, fair queues, captured output, logs."""
