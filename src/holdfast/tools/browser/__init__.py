"""`browser.*`: a real Chromium."""
