"""Events as their senders send them, cut to what a receiver could look at, with some that it must not."""

from typing import Any

SHA = "82b3d5ae55f7080f1e6022629cdb57bfae7cccc7"
GITLAB_PROJECT = {
    "id": 1,
    "path_with_namespace": "platform/kubevirt",
    "profile": "study",
    "run_id": "foreign",
}
GITHUB_PROJECT = {"id": 1, "full_name": "platform/kubevirt", "private": True}


def gitlab_pipeline(ref: Any = "main", status: Any = "success", sha: Any = SHA) -> dict[str, Any]:
    """A pipeline came to a status; the fields of ours that it also has must not become parameters."""
    about = {"id": 31, "ref": ref, "tag": False, "sha": sha, "source": "push", "status": status, "seed": 9}
    return {
        "object_kind": "pipeline",
        "object_attributes": about,
        "project": GITLAB_PROJECT,
        "parameters": {"profile": "study"},
        "deployment": "clean/virtual-study",
        "builds": [{"id": 380, "stage": "deploy", "name": "production", "status": "skipped"}],
    }


def gitlab_push(sha: str = SHA, kind: str = "push", ref: str = "refs/heads/main") -> dict[str, Any]:
    """Commits or a tag were pushed; `sha` is all zeros when the ref was deleted."""
    return {
        "object_kind": kind,
        "before": "95790bf891e76fee5e1747ab589903a6a1f80f22",
        "after": sha,
        "ref": ref,
        "checkout_sha": sha if sha.strip("0") else None,
        "project": GITLAB_PROJECT,
        "commits": [],
    }


def gitlab_release(tag: str = "v1.7.0", action: str = "create") -> dict[str, Any]:
    """A release was made, edited or deleted."""
    return {"object_kind": "release", "id": 1, "tag": tag, "action": action, "project": GITLAB_PROJECT}


def github_push(sha: str = SHA, ref: str = "refs/heads/main") -> dict[str, Any]:
    """Commits were pushed."""
    return {"ref": ref, "before": "0" * 40, "after": sha, "repository": GITHUB_PROJECT, "commits": []}


def github_release(tag: str = "v1.7.0", action: str = "published") -> dict[str, Any]:
    """A release came to a state."""
    return {"action": action, "release": {"id": 7, "tag_name": tag}, "repository": GITHUB_PROJECT}


def github_workflow_run(status: str | None = "success", ref: str = "main") -> dict[str, Any]:
    """A workflow was asked for, or ended."""
    about = {"id": 30433642, "name": "Build", "head_branch": ref, "head_sha": SHA, "conclusion": status}
    action = "completed" if status else "requested"
    return {"action": action, "workflow_run": about, "repository": GITHUB_PROJECT}


def github_deployment_status(state: str = "success") -> dict[str, Any]:
    """A deployment came to a state."""
    about = {"id": 42, "ref": "main", "sha": SHA, "environment": "production"}
    return {"deployment_status": {"state": state}, "deployment": about, "repository": GITHUB_PROJECT}


def alerts(
    status: str = "firing",
    starts: tuple[str, ...] = ("2026-12-01T10:00:00.123Z",),
    name: str = "Upgraded",
) -> dict[str, Any]:
    """A group of alerts, one for each of `starts`."""
    labels = {"alertname": name, "severity": "info", "team": "virt", "seed": "9", "profile": "study"}
    one = {"status": status, "annotations": {}, "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "1a30ba71"}
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{name}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "virtscale",
        "groupLabels": {"alertname": name},
        "commonLabels": labels,
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example:9093",
        "alerts": [{**one, "labels": dict(labels), "startsAt": start} for start in starts],
    }
