"""The run: one loop that draws, scores, filters, updates and records."""
