"""The command `dapo`."""
