"""The same runs into RGW and into a folder, in turns: what a store costs them. For `make prove-rgw`."""

from statistics import median

from infra.results.open import open_store
from infra.results.read import scan
from tasks.records import TABLES
from tests.benchmarks.prove_kills import RUN_ID, differences, tables
from tests.benchmarks.rgw_runs import BUCKET, Proof, Row, run_whole, say, words_of
from tests.benchmarks.rgw_served import served_words, serving

VMS = 16
MOST_SLOWER, MOST_WALL = 0.01, 1.1
RECORDS = 24_600


def served_pairs(proof: Proof, pairs: int) -> list[Row]:
    """Measured time on a served cluster, in real time: RGW against a folder."""
    with serving(proof.folder):
        changes = [_slower(proof, pair) for pair in range(pairs)]
    slower, spread = median(changes), f"{min(changes):+.2%} to {max(changes):+.2%}"
    return [
        Row(
            f"{pairs} interleaved pairs on a served cluster in real time, RGW against a folder; deploys and "
            f"boots of {VMS} VMs, delays set the time",
            f"measured stages slower by < {MOST_SLOWER:.0%} (median)",
            f"{slower:+.2%} ({spread}, n {pairs})",
            slower < MOST_SLOWER,
        )
    ]


def _slower(proof: Proof, pair: int) -> float:
    """By which share all that one run measured took longer on RGW; which is first takes turns."""
    words = served_words(proof.folder, [VMS], "preflight,golden-image,deploy,boot,clean")
    stores = [f"s3://{BUCKET}/pair-{pair}", str(proof.folder / f"pair-{pair}")]
    took_s = {}
    for store in stores if pair % 2 else stores[::-1]:
        run_whole(store, words)
        batches = scan(open_store(store), RUN_ID, "batches", TABLES["batches"])
        took_s[store] = float(batches["end_to_end_s"].sum())
    change = took_s[stores[0]] / took_s[stores[1]] - 1
    say(f"pair {pair + 1}: RGW {took_s[stores[0]]:.3f} s, folder {took_s[stores[1]]:.3f} s, {change:+.2%}")
    return change


def virtual_pairs(proof: Proof) -> list[Row]:
    """Wall time and tables of the study's 24,600 VM records on the virtual cluster, in the order ABBA."""
    stores = [str(proof.folder / "study-1"), f"s3://{BUCKET}/study-1"]
    stores += [f"s3://{BUCKET}/study-2", str(proof.folder / "study-2")]
    took_s = {store: run_whole(store, words_of("study")) for store in stores}
    for store, seconds in took_s.items():
        say(f"study in {seconds:.1f} s: {store.partition('://')[0] if '://' in store else 'folder'}")
    unlike = differences(tables(stores[0]), tables(stores[1]))
    ratios = [took_s[stores[1]] / took_s[stores[0]], took_s[stores[2]] / took_s[stores[3]]]
    return [
        Row(
            f"`study`, {RECORDS:,} VM records, on the virtual cluster: RGW against a folder, 2 pairs",
            f"equal columns, wall time <= {MOST_WALL}",
            f"{'equal' if not unlike else f'DIFFER in {unlike}'}; {median(ratios):.3f} of the wall time "
            f"({min(ratios):.3f} to {max(ratios):.3f}; folder {took_s[stores[0]]:.0f} s)",
            not unlike and median(ratios) <= MOST_WALL,
        )
    ]
