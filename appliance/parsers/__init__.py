"""Documents to text with provenance, each file in a limited child process."""
