"""Experiments that cut the power under a store and fail what it stands on; scripts/torture is their command line."""
