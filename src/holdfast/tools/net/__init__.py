"""What every tool that speaks HTTP shares: addresses that may be reached, DNS, the client, bodies."""
