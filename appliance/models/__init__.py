"""The model catalogue: fetch, verify, repack and import model files."""
