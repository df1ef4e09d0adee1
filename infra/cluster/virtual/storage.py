"""What the Ceph cluster behind the virtual cluster is made of: the constants of `ceph.py`."""

from typing import Literal

from pydantic import Field

from infra.cluster.virtual.part import Part


class Ceph(Part):
    """OSDs, their devices and memory, the network before them, and the client's own path."""

    hosts: int = Field(12, ge=1, description="storage hosts; reference study")
    osds: int = Field(288, ge=1, description="OSDs; assumption (205 to 409 fit the study's 8,192 PGs)")
    replicas: int = Field(3, ge=1, description="copies of every write; reference study")
    host_gib_per_s: float = Field(
        11.6, gt=0, description="network of one storage host, GiB per second; reference study (4x25G bond)"
    )
    osd_memory_gib: float = Field(
        8.0,
        description="memory that an OSD caches with, GiB; assumption (osd_memory_target of ODF performance)",
    )
    cache_share: float = Field(0.6, le=1, description="share of it that holds data; assumption")
    op_threads: int = Field(8, ge=1, description="operations of one OSD at once; assumption")
    read_cpu_us: float = Field(85.0, gt=0, description="a read in an OSD's thread, us; assumption")
    write_cpu_us: float = Field(150.0, gt=0, description="a write in an OSD's thread, us; assumption")
    media_read_us: float = Field(110.0, gt=0, description="a read that misses the cache, us; assumption")
    media_write_us: float = Field(
        3.5, gt=0, description="one write of the device without its bytes, us; assumption"
    )
    device_writes: int = Field(
        2,
        ge=1,
        description="writes of the device for one write: data and metadata log; assumption (BlueStore)",
    )
    media_gib_per_s: float = Field(
        0.25,
        gt=0,
        description="what one OSD's device writes for long, GiB per second; assumption (flash of mixed age)",
    )
    osds_per_image: int = Field(
        10,
        ge=1,
        description="OSDs that the busy part of one image lies on; assumption (the study: few VMs, few OSDs)",
    )
    busy_part_s: float = Field(
        60.0,
        gt=0,
        description="how long that part stays busy before another one is, seconds; "
        "assumption (random IO moves)",
    )
    client_us: float = Field(
        70.0, gt=0, description="guest, virtio, QEMU and RBD client, both ways, us; assumption"
    )
    client_gib_per_s: float = Field(
        0.5, gt=0, description="what one image writes at most when it is filled, GiB per second; assumption"
    )
    node_gib_per_s: float = Field(
        2.9, gt=0, description="network of a worker, GiB per second; assumption (25G)"
    )
    network_us: float = Field(
        40.0, gt=0, description="a message and its answer between two hosts, us; assumption"
    )
    spread: float = Field(
        0.22, description="spread of each of these times, standard deviation of its log; assumption"
    )
    idle_reads: Literal["wake-ups", "cold-caches", "off"] = Field(
        "wake-ups",
        description="why an idle read is slower than a loaded one; assumption (axboe/fio#1394)",
    )
    wake_us: float = Field(
        95.0, description="wake-ups: waking one host or vCPU that sleeps, us; assumption (deep idle state)"
    )
    idle_after_us: float = Field(
        200.0,
        description="wake-ups: idle time after which it sleeps, us; assumption (halt polling, governor)",
    )
    cold_us: float = Field(
        160.0, description="cold-caches: fetching what an OSD has forgotten of an object, us; assumption"
    )
    keep_s: float = Field(
        10.0, description="cold-caches: how long an OSD remembers an object, seconds; assumption"
    )
