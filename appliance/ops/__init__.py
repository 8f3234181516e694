"""Work on the box as a whole, beside the daemon: backups."""
