"""A real kube-apiserver, etcd and kube-controller-manager on loopback, for development and CI.

`python -m infra.testbed build|up|down|status|env`. Everything that a testbed writes is in its state folder;
the binaries are built once a machine from pinned Go modules (`go/`) and kept in the cache folder.
Linux only: processes are told apart by /proc.
"""
