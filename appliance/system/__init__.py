"""The operating system: clock, whole-file writes, logging, readiness."""
