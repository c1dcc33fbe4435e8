"""Rollout engines: prompts in, whole groups of sampled answers out."""
