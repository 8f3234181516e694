"""Text as Chinese and English really are: encodings, folding, terms, chunks, columns."""
