"""Puts `deployments/automations.yaml` on a Prefect server: what it should do by itself, and when."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import AutomationCore
from pydantic import ValidationError

from infra.errors import ProfileError

FILE = Path(__file__).parents[1] / "deployments" / "automations.yaml"
REQUEST = "{request}"


def everywhere() -> list[AutomationCore]:
    """Those that a server has once."""
    return [_automation(each) for each in _described("everywhere")]


def of_cluster(name: str, deployment_id: str, request: Mapping[str, Any]) -> list[AutomationCore]:
    """Those of one cluster; `name` is that of its deployments, `request` what its study is given."""
    known = {"{cluster}": name, "{deployment}": deployment_id}
    return [_automation(_filled(each, known, request)) for each in _described("per-cluster")]


def applied(client: SyncPrefectClient, wanted: list[AutomationCore]) -> Iterator[str]:
    """Make the server's automations so; a line for each that was not."""
    for each in wanted:
        found = client.read_automations_by_name(each.name)
        if not found:
            client.create_automation(each)
            yield f"created automation {each.name}{'' if each.enabled else ' (off)'}"
        elif _plain(found[0]) != _plain(each):
            client.update_automation(found[0].id, each.model_copy(update={"enabled": found[0].enabled}))
            yield f"changed automation {each.name}"


def _plain(automation: AutomationCore) -> dict[str, Any]:
    """What is compared; the server gives ids of its own, and whether it is on is the operator's."""
    return automation.model_dump(include={"name", "description"}) | {
        "trigger": automation.trigger.model_dump(exclude={"id"}),
        "actions": [each.model_dump() for each in automation.actions],
    }


def _described(part: str) -> list[dict[str, Any]]:
    try:
        listed: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())[part]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ProfileError(f"{FILE.name}: {' '.join(str(error).split())}") from None
    return listed


def _automation(body: Mapping[str, Any]) -> AutomationCore:
    try:
        return AutomationCore.model_validate(body)
    except ValidationError as error:
        raise ProfileError(f"{FILE.name}: {' '.join(str(error).split())}") from None


def _filled(value: Any, known: Mapping[str, str], request: Mapping[str, Any]) -> Any:
    """The text with its names filled in; a table's key {request} stands for what the study is given."""
    if isinstance(value, dict):
        own = {key: _filled(each, known, request) for key, each in value.items() if key != REQUEST}
        return {**request, **own} if REQUEST in value else own
    if isinstance(value, list):
        return [_filled(each, known, request) for each in value]
    for name, text in known.items():
        value = value.replace(name, text) if isinstance(value, str) else value
    return value
