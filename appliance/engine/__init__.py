"""Generation and embeddings: one owner thread over llama.cpp's low-level API."""
