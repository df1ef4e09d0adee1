"""What a run tells Prefect; no server needed: it is away."""

import logging
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES

from flows import artifacts
from flows.progress import progress
from flows.steps import Step
from tasks.profile import Profile
from tasks.run import RunRequest


def test_a_table_that_prefect_did_not_take_is_told_with_the_next_one_and_nobody_waits_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    away = True

    def create(table: Any, key: str, description: str) -> str:
        assert PREFECT_CLIENT_MAX_RETRIES.value() == artifacts.RETRIES
        if away:
            raise httpx.ConnectError("away")
        told.append(key)
        return key

    monkeypatch.setattr(artifacts, "create_table_artifact", create)
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: logging.getLogger("test"))
    monkeypatch.setattr(artifacts, "table_of", lambda *_: [{"VMs": "1"}])
    monkeypatch.setattr(artifacts, "step_lines", lambda *_: [])
    monkeypatch.setattr(artifacts.Artifacts, "_show", lambda *_: None)
    shown = artifacts.Artifacts(RunRequest(profile=Profile()), progress.get())
    shown.finished(Step("deploy", "1", label="deploy 1"), {})
    assert told == []
    away = False
    shown.finished(Step("deploy", "2", label="deploy 2"), {})
    assert told == ["deploy-1", "deploy-2"]
