"""The controllers of a KubeVirt cluster, one a module, each an ordinary client of the port.

`start(plane)` of each module registers its handlers and workers with a control plane.
"""
