"""Pure functions on tensors: group filters, advantages, reward shaping, losses, and the registry of algorithms."""
