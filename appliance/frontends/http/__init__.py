"""HTTP: OpenAI's API and our own, over one core; loopback only unless a key is set."""
