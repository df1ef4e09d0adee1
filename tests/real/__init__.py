"""Tests against an API server, an object store, guests or a browser."""
