"""Ways in: HTTP, terminal, drop folder; each sees only ``core``."""
