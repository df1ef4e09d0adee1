"""Tests without sockets or servers."""
