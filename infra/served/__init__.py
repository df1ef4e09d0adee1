"""The virtual cluster in real time behind a Kubernetes-compatible HTTP API: `virtscale cluster serve`."""
