"""The update: packed passes, one division per optimizer step, float32 master weights."""
