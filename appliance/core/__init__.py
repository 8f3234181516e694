"""What the box does, seen by every front end through one facade."""
