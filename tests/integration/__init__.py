"""Tests with real sockets and servers on this machine."""
