"""Loopback ports of this machine."""

import socket


def is_free(port: int) -> bool:
    """Whether nobody has this port of 127.0.0.1."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
