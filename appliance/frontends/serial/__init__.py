"""Serial lines: a chat for people and newline-delimited JSON for machines on the same wire."""
