"""Chat on a terminal."""
