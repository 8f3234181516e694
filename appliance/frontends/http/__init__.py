"""The HTTP front end: OpenAI-shaped API, the box's own API, event streams."""
