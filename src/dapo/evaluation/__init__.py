"""Measuring a model: avg@n, pass@k and maj@k with their uncertainty, on problems whose answers can be checked."""
