"""Guests on the real network, over SSH: one patient connection per VirtualMachine."""
