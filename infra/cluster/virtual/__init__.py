"""The virtual cluster: a model of a KubeVirt cluster, its controllers ordinary clients of the port."""
