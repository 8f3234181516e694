"""One SQLite file: documents, passages, full text, vectors, jobs and conversations."""
