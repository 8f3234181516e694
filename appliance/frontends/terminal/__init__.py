"""The terminal: a chat with the running daemon, and the screens the command line shares with it."""
