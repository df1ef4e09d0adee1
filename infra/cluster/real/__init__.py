"""A Kubernetes API server as a `Cluster`: the official client's configuration, lean requests of our own."""

from infra.cluster.real.adapter import KubernetesCluster, connect

__all__ = ["KubernetesCluster", "connect"]
