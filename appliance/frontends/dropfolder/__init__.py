"""The inbox folder: what changed on disk becomes work for the ingest queue."""
