"""What holds calls back: guards, breakers, pressure, health checks."""
