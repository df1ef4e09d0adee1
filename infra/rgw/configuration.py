"""The ceph.conf of one monitor, one OSD and one gateway; every line that is not plain has its reason here."""

from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Literal

import orjson

from infra.testbed import pki

ObjectStoreKind = Literal["bluestore", "memstore"]
DEFAULT_FOLDER = Path(__file__).parents[2] / ".rgw"
ACCESS_KEY, SECRET_KEY, REGION = "virtscale", "virtscale-secret", "us-east-1"
"""Of a throwaway store on loopback: no secret."""


@dataclass(frozen=True)
class Gateway:
    """One RGW: its folder, the S3 port (monitor and OSD take the next ones), and where objects are kept.

    `bluestore` survives a kill -9, `memstore` is faster and does not. Writes hang at 85 % of `size_gib`.
    `tls`: by a certificate of an authority of its own.
    """

    folder: Path
    port: int
    kind: ObjectStoreKind = "bluestore"
    size_gib: int = 16
    fsid: str = ""
    tls: bool = False

    @property
    def endpoint(self) -> str:
        """Where S3 answers."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def keys(self) -> Path:
        """The folder of its authority, certificate and key."""
        return self.folder / "pki"

    @property
    def authority(self) -> Path | None:
        """The certificate that its own is verified by; None without TLS."""
        return self.keys / f"{pki.CLUSTER_CA}.crt" if self.tls else None

    @property
    def conf(self) -> Path:
        """The configuration that every daemon reads."""
        return self.folder / "ceph.conf"

    def environment(self) -> dict[str, str]:
        """What a client of it needs, as environment variables."""
        trusted = {"VIRTSCALE_S3_CA_BUNDLE": str(self.authority)} if self.authority else {}
        return trusted | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }

    def write(self) -> None:
        """Record it in its folder."""
        document = {**asdict(self), "folder": str(self.folder)}
        (self.folder / "gateway.json").write_bytes(orjson.dumps(document))
        self.conf.write_text(_conf(self))


def read(folder: Path) -> Gateway | None:
    """The recorded gateway of a folder, or None."""
    try:
        document = orjson.loads((folder / "gateway.json").read_bytes())
    except FileNotFoundError:
        return None
    return Gateway(**{**document, "folder": folder})


def _conf(gateway: Gateway) -> str:
    return _TEMPLATE.substitute(
        dir=gateway.folder,
        fsid=gateway.fsid,
        frontend=_frontend(gateway),
        mon=gateway.port + 1,
        low=gateway.port + 2,
        high=gateway.port + 9,
        kind=gateway.kind,
        bytes=gateway.size_gib * 2**30,
        # memstore writes its data down in a slow shutdown only.
        fast="true" if gateway.kind == "bluestore" else "false",
        quiet="\n".join(f"debug_{each} = 0/0" for each in _QUIET),
    )


def _frontend(gateway: Gateway) -> str:
    where = f"127.0.0.1:{gateway.port}"
    if not gateway.tls:
        return f"endpoint={where}"
    certificate, key = gateway.keys / "apiserver.crt", gateway.keys / "apiserver.key"
    return f"ssl_endpoint={where} ssl_certificate={certificate} ssl_private_key={key}"


_QUIET = ("ms", "auth", "osd", "bluestore", "bluefs", "bdev", "rocksdb", "objecter", "mon", "paxos", "monc")
_TEMPLATE = Template("""\
[global]
fsid = $fsid
mon_initial_members = a
mon_host = [v2:127.0.0.1:$mon]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
ms_bind_msgr1 = false
ms_bind_port_min = $low
ms_bind_port_max = $high
# no keyrings: everything listens on loopback only
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = $dir/run
pid_file = $dir/run/$$name.pid
admin_socket = $dir/run/$$name.asok
log_file = $dir/log/$$name.log
crash_dir = $dir/crash
log_to_stderr = false
err_to_stderr = false
mon_cluster_log_to_file = false
log_max_recent = 500
$quiet
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_warn_on_pool_no_redundancy = false
[mon]
mon_data = $dir/mon
# a second by default, and every pool that is made waits for it
paxos_propose_interval = 0.05
paxos_min_wait = 0.02
mon_osd_full_ratio = .85
mon_osd_backfillfull_ratio = .80
mon_osd_nearfull_ratio = .75
mon_data_avail_warn = 2
mon_data_avail_crit = 1
auth_allow_insecure_global_id_reclaim = false
[osd]
osd_data = $dir/osd
osd_objectstore = $kind
osd_fast_shutdown = $fast
memstore_device_bytes = $bytes
# a sparse file
bluestore_block_size = $bytes
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_cache_autotune = false
bluestore_cache_size = 134217728
osd_memory_target = 939524096
# memtables of 4 x 256 MiB by default
bluestore_rocksdb_options = compression=kNoCompression,max_write_buffer_number=4,\
min_write_buffer_number_to_merge=1,recycle_log_file_num=4,write_buffer_size=33554432,\
writable_file_max_buffer_size=0,compaction_readahead_size=2097152,max_background_compactions=1,\
max_total_wal_size=134217728
osd_max_pg_log_entries = 500
osd_min_pg_log_entries = 100
osd_op_num_shards = 2
osd_class_update_on_start = false
osd_mclock_skip_benchmark = true
[client.rgw]
# radosgw's own default is "secure", which auth "none" cannot give
ms_mon_client_mode = crc
# without tcp_nodelay a third of the reads wait 40 ms for a delayed ACK
rgw_frontends = beast $frontend tcp_nodelay=1
rgw_thread_pool_size = 64
rgw_num_rados_handles = 1
rgw_enable_usage_log = false
rgw_enable_ops_log = false
rgw_dynamic_resharding = false
rgw_override_bucket_index_max_shards = 1
rgw_crypt_require_ssl = false
""")
