"""`http.*`: requests, address policy, DNS."""
