"""Hugging Face checkpoints in and out, and the one way in which the model is run: packed, without padding."""
