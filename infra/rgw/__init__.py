"""A real Ceph RADOS Gateway (S3) on loopback, from Debian's packages, without systemd, for tests."""
