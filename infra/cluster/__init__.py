"""The cluster: one port, its adapters (virtual, real), and the observers built on it."""
