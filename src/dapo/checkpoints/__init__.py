"""Saving a run so that it goes on bit for bit, and handing its model to other tools."""
