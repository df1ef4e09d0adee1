"""What becomes of writes when answers are lost, and when the store is away or refuses."""

import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from infra import settings
from infra.errors import InUse, ProfileError, StoreAway, StoreError
from infra.results import s3
from infra.results.commits import attempt_name, commit_key, part_prefix, run_folders, state_key
from infra.results.lending import LentStore, lent_address, replied
from infra.results.lock import only_process
from infra.results.manifest import manifest_key
from infra.results.open import open_store, spool_folder
from infra.results.port import Cell
from infra.results.run_results import open_results
from infra.results.s3 import S3Store
from infra.results.s3_client import KEY_BYTES, LONGEST_PREFIX_BYTES, parse_address
from infra.results.uploads import UploadingStore, upload_cost, uploading, waiting_writes
from infra.testbed import pki
from tasks.profile import STAGES
from tasks.records import TABLES
from tests.store.fault_proxy import HANG, LOSE, PASS, RESET, Answer, Fault, Proxy, always, first
from tests.unit.results.rows import CELL, deploys, read

AWAY = Answer(503, "SlowDown")


FOLDERS = run_folders("r", TABLES)


@pytest.mark.parametrize(
    "faults", [[LOSE], [LOSE, LOSE], [RESET], [AWAY, RESET, LOSE], [Answer(409, "Conflict")]]
)
def test_a_conditional_write_whose_answer_was_lost_is_known_by_its_mark(
    store: S3Store, proxy: Proxy, faults: list[Fault]
) -> None:
    proxy.plan = first(faults)
    assert store.put_new("k", b"mine") is True
    assert store.put_new("k", b"mine") is False
    assert store.get("k") == b"mine"
    assert store.traffic.resent == len(faults)


def test_a_write_of_another_is_not_taken_for_ours(store: S3Store, proxy: Proxy, moto_bucket: str) -> None:
    open_store(f"s3://{moto_bucket}/p").put_new("k", b"same bytes")
    proxy.plan = first([LOSE])
    assert store.put_new("k", b"same bytes") is False


def test_reads_and_deletes_are_sent_again(store: S3Store, proxy: Proxy) -> None:
    store.put("k", b"body")
    proxy.plan = first([LOSE, AWAY], "GET")
    assert store.get("k") == b"body"
    proxy.plan = first([LOSE, AWAY], "DELETE")
    store.delete("k")
    assert store.keys("") == []


def test_a_store_that_does_not_come_back_is_away(store: S3Store, proxy: Proxy) -> None:
    proxy.plan = always(AWAY)
    with pytest.raises(
        StoreAway, match=r"^store s3://\S+: http://\S+ answers 503 SlowDown; start it, or correct"
    ):
        store.get("k")


def test_a_store_that_does_not_answer_in_time_is_away(
    proxy: Proxy, moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_S3_TIMEOUT_S", "1")
    store = S3Store(parse_address(f"s3://{moto_bucket}/p"), settings.s3())
    proxy.plan = always(HANG)
    store.hurry(True)
    with pytest.raises(
        StoreAway, match=r"does not answer in time; start it, or correct VIRTSCALE_S3_ENDPOINT"
    ):
        store.get("k")


def test_a_store_that_ignores_conditions_is_refused(proxy: Proxy, moto_bucket: str) -> None:
    proxy.drop.add("if-none-match")
    with pytest.raises(
        StoreError, match=r"ignores `If-None-Match: \*` on PUT, so two writers would overwrite"
    ):
        open_store(f"s3://{moto_bucket}/other")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(403, "AccessDenied"), "access denied; these credentials need s3:ListBucket"),
        (Answer(403, "RequestTimeTooSkewed"), "clock differs from the store's by too much; set it right"),
        (Answer(403, "InvalidAccessKeyId"), "does not know this access key; correct AWS_ACCESS_KEY_ID"),
        (Answer(403, "SignatureDoesNotMatch"), "the secret key is not that of this access key"),
        (Answer(400, "ExpiredToken"), "these credentials have expired; get new ones"),
        (Answer(301, "PermanentRedirect"), "the bucket is in another region; name it in VIRTSCALE_S3_REGION"),
        (Answer(404, "NoSuchBucket"), "there is no bucket bucket-[0-9a-f]+ at http://.*; make it, or name"),
        (Answer(404, "Whatever"), "refuses: Whatever as told"),
        (Answer(405, "MethodNotAllowed"), "is no S3 store; correct VIRTSCALE_S3_ENDPOINT"),
    ],
)
def test_what_a_store_refuses_is_one_line_with_what_to_do(
    proxy: Proxy, moto_bucket: str, answer: Answer, says: str
) -> None:
    proxy.plan = always(answer)
    with pytest.raises(StoreError, match=f"^store s3://{moto_bucket}/x: .*{says}") as refusal:
        open_store(f"s3://{moto_bucket}/x")
    assert not isinstance(refusal.value, StoreAway)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3://", "store s3://: no bucket is named; write s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3:///prefix", "store s3:///prefix: no bucket is named; write s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://Lab/x", "store s3://Lab/x: names of buckets are lower-case; did you mean s3://lab?"),
        (
            "s3://lab/../x",
            "store s3://lab/../x: a prefix has no empty part, no . and no ..; write s3://lab/a/b",
        ),
        (
            "s3://lab/a//b",
            "store s3://lab/a//b: a prefix has no empty part, no . and no ..; write s3://lab/a/b",
        ),
        (
            "s3://key:secret@lab",
            "store s3://: credentials are no part of an address; set AWS_ACCESS_KEY_ID and the like",
        ),
        (
            "s3://a_b",
            "store s3://a_b: a_b is no name of a bucket; use lower-case letters, digits, dots, dashes",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_in_one_line(address: str, says: str) -> None:
    with pytest.raises(StoreError) as refusal:
        open_store(address)
    assert str(refusal.value) == says


def test_with_the_longest_prefix_all_keys_fit_and_a_longer_one_is_refused() -> None:
    longest = "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * (LONGEST_PREFIX_BYTES // 2)
    prefix, run_id = parse_address(f"s3://lab/{longest}").prefix, "r" * 40
    most = 10**9
    cell = Cell(max(STAGES, key=len), "c" * 60, most)
    table = max(TABLES, key=len)
    part = part_prefix(table, run_id, f"{attempt_name(cell, most)}-{most}.parquet")
    for key in (part, commit_key(run_id, cell, most), state_key(run_id, cell, most), manifest_key(run_id)):
        assert len((prefix + key).encode()) <= KEY_BYTES
    says = f"^store s3://lab: the prefix has {LONGEST_PREFIX_BYTES + 1} bytes, .*; give one of 768 at most$"
    with pytest.raises(StoreError, match=says):
        open_store(f"s3://lab/{longest}u")


@pytest.mark.parametrize("name", ["VIRTSCALE_S3_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("endpoint", ["http://user:sekret@127.0.0.1:9", "user:se kret@localhost"])
def test_an_endpoint_with_a_password_is_refused_without_it(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv(name, endpoint)
    with pytest.raises(StoreError) as refusal:
        open_store(f"s3://{moto_bucket}/x")
    assert str(refusal.value) == (
        f"{name.removesuffix('_S3') if 'AWS' in name else name}: credentials are no part of an endpoint; "
        "write http://HOST:PORT or https://HOST, and set AWS_ACCESS_KEY_ID and the like"
    )


@pytest.mark.parametrize(
    "value", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "0", "-1", "9" * 5000, "2s"]
)
def test_a_time_that_is_no_whole_number_is_one_line(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("VIRTSCALE_S3_TIMEOUT_S", value)
    with pytest.raises(ProfileError, match=r"^VIRTSCALE_S3_TIMEOUT_S='.+': give a whole number, 1 to 9+$"):
        open_store("s3://lab/x")


def test_missing_credentials_are_one_line(moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(
        StoreError, match=r"no usable credentials \(Unable to locate credentials\); set AWS_ACCESS"
    ):
        open_store(f"s3://{moto_bucket}/x")


def test_a_state_folder_that_is_a_file_is_one_line(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "file"))
    says = r"^spool .*: cannot be written \(Not a directory\); choose another folder in VIRTSCALE_STATE$"
    with pytest.raises(StoreError, match=says), only_process(store, "r"):
        pass


def test_nobody_at_the_endpoint_is_one_line(moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTSCALE_S3_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(s3, "FIRST_PAUSE_S", 0.001)
    with pytest.raises(
        StoreAway, match=r"http://127.0.0.1:9 cannot be reached; start it, or correct VIRTSCALE_S3_E"
    ):
        open_store(f"s3://{moto_bucket}/x")


def test_an_endpoint_that_is_no_address_is_one_line(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_S3_ENDPOINT", "localhost:9")
    with pytest.raises(StoreError, match=r"write http://HOST:PORT or https://HOST in VIRTSCALE_S3_ENDPOINT$"):
        open_store(f"s3://{moto_bucket}/x")


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[str]:
    """A server whose certificate nobody knows."""
    pki.ensure(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pki/apiserver.crt", tmp_path / "pki/apiserver.key")
    server = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_certificate_that_cannot_be_verified_is_one_line(
    tls_server: str, moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_S3_ENDPOINT", tls_server)
    with pytest.raises(
        StoreError, match=r"cannot be verified \(.*\); name its CA in VIRTSCALE_S3_CA_BUNDLE$"
    ):
        open_store(f"s3://{moto_bucket}/x")


def test_a_store_that_goes_away_takes_what_was_committed_when_it_is_back(
    store: S3Store, proxy: Proxy, tmp_path: Path
) -> None:
    told: list[str] = []
    with uploading(store, "r", FOLDERS, told.append) as uploads_:
        results = open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool")
        proxy.plan = always(AWAY)
        for _ in range(3):
            attempt = results.begin(CELL)
            attempt.add("vm_deploys", deploys(3))
            attempt.commit({}, state=b"state")
        assert read(uploads_)["attempt"].to_list() == [3] * 3
        assert waiting_writes(uploads_, "r") > 0
        threading.Timer(0.3, setattr, [proxy, "plan", always(PASS)]).start()
    assert read(store)["attempt"].to_list() == [3] * 3
    assert len(told) == 1
    assert waiting_writes(store, "r") == 0
    cost = upload_cost(uploads_)
    assert cost is not None
    assert cost["away_s"] > 0


def test_an_interrupt_before_the_first_write_leaves_no_thread_behind(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(uploads_: UploadingStore, run_id: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(UploadingStore, "release_committed", interrupt)
    with pytest.raises(KeyboardInterrupt), uploading(store, "r", FOLDERS, print):
        pass
    assert not [each.name for each in threading.enumerate() if each.name.startswith("upload")]


def test_a_lent_store_is_the_one_of_who_uploads(store: S3Store) -> None:
    with uploading(store, "r", FOLDERS, lambda line: None) as uploads_:
        address = lent_address(uploads_)
        lent = LentStore(address, partial(replied, uploads_))
        assert [lent.put_new("k", body) for body in (b"first", b"second")] == [True, False]
        lent.put("_states/r/s", b"state")
        assert (lent.get("k"), lent.get("none"), lent.keys("_states/r/")) == (b"first", None, ["_states/r/s"])
        lent.delete("_states/r/s")
        assert uploads_.keys("_states/r/") == []
        assert lent.address("k") == uploads_.address("k")
    assert store.get("k") == b"first"


def test_of_a_lent_store_errors_are_the_same(store: S3Store, proxy: Proxy) -> None:
    with uploading(store, "r", FOLDERS, lambda line: None) as uploads_:
        lent = LentStore(lent_address(uploads_), partial(replied, uploads_))
        proxy.plan = always(Answer(403, "AccessDenied"))
        with pytest.raises(StoreError, match="access denied"):
            lent.get("k")
        proxy.plan = always(PASS)


def test_a_lane_that_loses_its_attempt_gives_way_alone(store: S3Store, tmp_path: Path) -> None:
    """Two attempts are written at once, and another machine has a part of one of them."""
    with uploading(store, "r", FOLDERS, lambda line: None) as uploads_:
        lanes = [open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool") for _ in range(2)]
        mine, theirs = (lane.begin(Cell("deploy", size)) for lane, size in zip(lanes, "12", strict=True))
        store.put("vm_deploys/run_id=r/deploy-2-1-1-0.parquet", b"of another machine")
        for attempt in (mine, theirs):
            attempt.add("vm_deploys", deploys(2))
        with ThreadPoolExecutor(2) as pool:
            lost, won = pool.submit(theirs.commit, {}), pool.submit(mine.commit, {})
            assert won.result().cell.cell == "1"
            with pytest.raises(InUse, match="another process committed deploy 2 attempt 1 of run r first"):
                lost.result()
    assert store.keys("_commits/r/") == ["_commits/r/deploy-1-1-1.json"]


def test_on_virtual_time_a_spool_stays_until_its_commit_is_stored(
    store: S3Store, proxy: Proxy, tmp_path: Path
) -> None:
    may_answer = threading.Event()

    def late(method: str, path: str) -> Fault:
        if method == "PUT" and "/_commits/" in path:
            may_answer.wait(10)
        return PASS

    with uploading(store, "r", FOLDERS, print, virtual_time=True) as uploads_:
        results = open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool")
        proxy.plan = late
        for size in ("1", "2"):
            attempt = results.begin(Cell("deploy", size))
            attempt.add("vm_deploys", deploys(2))
            attempt.commit({})
        spools = list((tmp_path / "spool").glob("*.spool"))
        seen, stored = len(results.commits()), store.keys("_commits/r/")
        may_answer.set()
    assert (seen, stored, len(spools)) == (2, [], 2)
    assert store.keys("_commits/r/") == ["_commits/r/deploy-1-1-1.json", "_commits/r/deploy-2-1-1.json"]
    assert not list((tmp_path / "spool").glob("*.spool"))


def test_on_virtual_time_a_run_ends_that_went_on_from_what_another_committed(
    store: S3Store, tmp_path: Path
) -> None:
    def go_on() -> None:
        with uploading(store, "r", FOLDERS, print, virtual_time=True) as uploads_:
            results = open_results(uploads_, "r", "virtual", TABLES, tmp_path / "spool")
            store.put("_commits/r/deploy-400-1-1.json", b"of another machine")
            attempt = results.begin(CELL)
            attempt.add("vm_deploys", deploys(2))
            attempt.commit({})

    with pytest.raises(InUse, match="another process committed this first"):
        go_on()
    assert store.get("_commits/r/deploy-400-1-1.json") == b"of another machine"


def test_a_spool_that_outlived_its_commit_by_a_kill_is_removed_at_the_next_start(store: S3Store) -> None:
    spools = spool_folder(store, "r")
    with uploading(store, "r", FOLDERS, print) as uploads_:
        attempt = open_results(uploads_, "r", "virtual", TABLES, spools).begin(CELL)
        attempt.add("vm_deploys", deploys(2))
        attempt.commit({})
    (spools / "deploy-400-1-1.spool").touch()
    (spools / "deploy-400-1-2.spool").touch()
    with uploading(store, "r", FOLDERS, print):
        assert [path.name for path in spools.glob("*.spool")] == ["deploy-400-1-2.spool"]
