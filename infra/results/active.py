"""Stores that runs of this process are uploading to, by address: every step of a run shares its one."""

from infra.results.port import ObjectStore

ACTIVE: dict[str, ObjectStore] = {}
