"""What Prefect is told of a run whose results are in S3."""

import pytest

from flows import artifacts
from flows.outcome import Outcome
from infra.results.open import open_store
from tasks.report_stage import report_key
from tasks.run import RunRequest


def test_the_summary_links_to_the_report_by_its_address_and_signs_nothing(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-told")
    told: list[str] = []
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda text, **_: told.append(text))
    store = f"s3://{moto_bucket}/lab"
    report = open_store(store).address(report_key("r"))
    artifacts.summarise(Outcome("r", "valid", (), report, 1.0, 1.0), RunRequest(run_id="r", store=store))
    assert f"[Report](s3://{moto_bucket}/lab/reports/r/report.html)" in told[0]
    assert not [word for word in ("not-to-be-told", "X-Amz", "Signature", "AKIA") if word in told[0]]
