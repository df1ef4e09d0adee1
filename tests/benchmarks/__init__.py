"""Measurements of virtscale itself."""
