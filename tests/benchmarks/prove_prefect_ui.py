"""A person at the Prefect UI, in a real browser: a schedule, a run by its form, Retry, the report.

The fault plan takes the API away at batch 1,600, on that batch's first attempt only. Pictures are kept.
"""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from infra.results.commits import read_commits
from infra.results.open import open_store
from tests.benchmarks.browser import Page, browser
from tests.integration.operating import Operation, until

STUDY = "study/virtual-study"
BATCHES = (100, 200, 400, 800, 1600, 3200)
STOPS_AT = 1600
FAULTS = f"""
[[fault]]
kind = "api-away"
stage = "deploy"
batch = {STOPS_AT}
attempt = 1
at_s = 1
for_s = 100000
"""
FIELD = """
(() => {{
  const words = (e) => (e.innerText || '').trim().replace(/ \\(Optional\\)$/, '');
  const named = [...document.querySelectorAll('label, legend, span, p, div')]
    .filter((e) => words(e) === {name} && !e.children.length);
  for (let e = named.pop(); e; e = e.parentElement) {{
    const found = e.querySelector({tags});
    if (found) return found;
  }}
  return null;
}})()
"""
LAST_ITEM = """
(() => {
  let e = [...document.querySelectorAll('button')].find((e) => e.innerText.trim() === 'Add item');
  while (e && !e.querySelector('textarea')) e = e.parentElement;
  return e && [...e.querySelectorAll('textarea')].pop();
})()
"""


class Person:
    """Somebody who uses the pages; keeps a picture of each step."""

    def __init__(self, page: Page, operation: Operation, pictures: Path) -> None:
        self.page, self.operation, self._pictures = page, operation, pictures
        self._ui = operation.url.removesuffix("/api") + "/v2"

    def opens(self, path: str, reads: str) -> None:
        """Go to a page, wait until it says so, and until its picture of the tasks is drawn."""
        self.page.go(f"{self._ui}/{path}")
        self.page.reads(reads)
        time.sleep(4 if path.startswith("runs/") else 1)

    def keeps(self, name: str) -> None:
        """Take a picture."""
        time.sleep(0.5)
        self.page.picture(self._pictures / f"{name}.png")

    def fills(self, name: str, text: str) -> None:
        """Type into the field of that name."""
        tags = json.dumps("input:not([type=checkbox]), textarea")
        self.page.press_on(FIELD.format(name=json.dumps(name), tags=tags))
        self.page.type(text)

    def switches(self, name: str) -> None:
        """Press the switch of that name."""
        self.page.press_on(FIELD.format(name=json.dumps(name), tags=json.dumps("[role=switch]")))


def proof(operation: Operation, folder: Path, pictures: Path) -> list[tuple[str, str]]:
    """What a person did and what came of it, line by line; each line is checked."""
    faults = folder / "away.toml"
    faults.write_text(FAULTS)
    with browser(folder / "browser") as page:
        person = Person(page, operation, pictures)
        lines = [("Schedule made in the UI", schedule(person))]
        run_id = started(person, faults)
        lines += [
            ("Run started through its form", f"flow run of `{STUDY}`"),
            ("Stops", stopped(person, run_id)),
        ]
        lines += [("Retry pressed", retried(person, run_id))]
        lines += [("Report opened", report(person, run_id))]
    return lines


def schedule(person: Person) -> str:
    """A schedule of every hour, as the UI proposes; it is the deployment's second, and is deleted again."""
    deployment = person.operation.ask("GET", f"/deployments/name/{STUDY.replace(' ', '%20')}")
    before = len(deployment["schedules"])
    person.opens(f"deployments/deployment/{deployment['id']}", "Schedule")
    person.keeps("1-deployment")
    person.page.press("Schedule")
    person.page.reads("Cron")
    person.keeps("2-schedule")
    person.page.press("Save")
    path = f"/deployments/{deployment['id']}"
    found = until(lambda: person.operation.ask("GET", path)["schedules"], lambda some: len(some) > before, 30)
    person.page.until("!document.querySelector('[role=dialog]')")
    person.keeps("3-scheduled")
    assert "refused" not in person.operation.virtscale("prefect", "apply").stdout
    new = found[0]["schedule"] if found[0]["slug"] != "weekly" else found[-1]["schedule"]
    for each in found:
        if each["slug"] != "weekly":
            person.operation.ask("DELETE", f"{path}/schedules/{each['id']}")
    return f"beside the weekly one: every {new['interval']:.0f} s"


def started(person: Person, faults: Path) -> str:
    """The run's id."""
    deployment = person.operation.ask("GET", f"/deployments/name/{STUDY}")
    person.opens(f"deployments/deployment/{deployment['id']}/run", "Submit")
    person.fills("Profile", "study")
    person.fills("Store", str(faults.with_name("store")))
    person.fills("Faults", str(faults))
    for change in (
        f"deploy.batches={list(BATCHES)}",
        'stages=["preflight","golden-image","deploy","report","clean"]',
    ):
        person.page.press("Add item")
        time.sleep(0.5)
        person.page.press_on(LAST_ITEM)
        person.page.type(change)
    person.keeps("4-form")
    person.page.press("Submit")
    asked = {"deployments": {"id": {"any_": [deployment["id"]]}}}

    def of_the_form() -> list[str]:
        found = person.operation.ask("POST", "/flow_runs/filter", asked)
        return [run["id"] for run in found if run["parameters"]["request"].get("faults") == str(faults)]

    (run_id,) = until(of_the_form, bool, 60)
    return str(run_id)


def stopped(person: Person, run_id: str) -> str:
    """The state in which it stops, and at which task."""
    assert person.operation.ended(run_id) == "FAILED"
    tasks = person.operation.tasks(run_id, 6)
    assert tasks[-1] == (f"deploy {STOPS_AT}", "Failed"), tasks
    person.opens(f"runs/flow-run/{run_id}", "Failed")
    person.keeps("5-stopped")
    return f"Failed at task `deploy {STOPS_AT}`; {len(tasks) - 1} tasks before it Completed"


def retried(person: Person, run_id: str) -> str:
    """Press Retry; what was redone."""
    before = len(person.operation.tasks(run_id, 6))
    # A hook of the failed run may still be about.
    time.sleep(10)
    person.page.press_on(
        "document.querySelector('main button[aria-haspopup=menu], button[aria-haspopup=menu]')"
    )
    person.page.press("Retry", "[role=menuitem]")
    person.keeps("6-retry")
    if person.page.evaluate("!!document.querySelector('[role=alertdialog], [role=dialog]')"):
        person.page.press("Retry", "[role=alertdialog] button, [role=dialog] button")
    until(lambda: person.operation.run(run_id)["run_count"], lambda count: count >= 2)
    assert person.operation.ended(run_id) == "COMPLETED"
    again = person.operation.tasks(run_id, before + 5)[before:]
    cached = [name for name, state in again if state == "Cached"]
    assert cached == ["preflight", "golden image", *(f"deploy {n}" for n in BATCHES if n < STOPS_AT)], again
    executed = begun(person.operation, run_id)
    assert executed[f"deploy {STOPS_AT}"] == 2, executed
    assert {executed[name] for name in executed if name != f"deploy {STOPS_AT}"} == {1}, executed
    attempts = {
        each.cell.cell: each.attempt
        for each in read_commits(open_store(store_of(person.operation, run_id)), run_id)
        if each.cell.stage == "deploy" and each.complete
    }
    assert attempts[str(STOPS_AT)] == 2, attempts
    person.opens(f"runs/flow-run/{run_id}", "Completed")
    person.keeps("7-completed")
    return f"Completed; cached: {', '.join(cached)}; executed twice: deploy {STOPS_AT} alone"


def report(person: Person, run_id: str) -> str:
    """Open the report that the summary names."""
    found = person.operation.ask("POST", "/artifacts/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
    (summary,) = [each for each in found if each["key"] == "summary"]
    person.opens(f"artifacts/artifact/{summary['id']}", f"Run {run_id}")
    person.keeps("8-summary")
    # Prefect's page makes no link of a file's address; whoever reads it copies the path.
    shown = (
        "[...document.querySelectorAll('code')].map((e) => e.innerText).find((t) => /report\\.html$/.test(t))"
    )
    address = person.page.evaluate(shown)
    assert address, "the summary names no report"
    person.page.go(address if "://" in address else f"file://{address}")
    person.page.reads(run_id)
    person.keeps("9-report")
    return f"its title: {person.page.evaluate('document.title')}"


def store_of(operation: Operation, run_id: str) -> str:
    """Where the run's results are."""
    request: dict[str, Any] = operation.run(run_id)["parameters"]["request"]
    return str(request["store"])


def begun(operation: Operation, run_id: str) -> Counter[str]:
    """How often each step was executed, from the log line that only an execution writes."""
    asked = {"logs": {"flow_run_id": {"any_": [run_id]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
    lines: list[dict[str, Any]] = []
    while page := operation.ask("POST", "/logs/filter", asked | {"offset": len(lines)}):
        lines += page
    return Counter(
        line["message"].removesuffix(" begins") for line in lines if line["message"].endswith(" begins")
    )
