"""A real browser for proofs: Debian's Chromium without a window, driven over its DevTools protocol.

Clicks and keys are the browser's own input events, so a page cannot tell them from a person's.
"""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 30.0
WIDTH, HEIGHT = 1400, 1000
FIND = """
(() => {
  const wanted = %s, tags = %s;
  const named = (e) => [e.innerText, e.getAttribute('aria-label'), e.getAttribute('placeholder')]
    .some((text) => (text || '').trim() === wanted);
  const seen = (e) => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const found = [...document.querySelectorAll(tags)].filter((e) => named(e) && seen(e) && !e.disabled).pop();
  if (!found) return null;
  found.scrollIntoView({block: 'center'});
  const r = found.getBoundingClientRect();
  return [r.x + r.width / 2, r.y + r.height / 2];
})()
"""
PRESSABLE = (
    "button, a, [role=button], [role=tab], [role=menuitem], [role=option], [role=combobox], [role=switch]"
)


def program() -> str | None:
    """Where this machine's Chromium is."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page; every wait ends after half a minute with what was waited for."""

    def __init__(self, socket: Connection) -> None:
        self._socket, self._ids = socket, count(1)

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its answer."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv(timeout=PATIENCE_S))).get("id") != number:
            pass
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, limit_s: float = PATIENCE_S) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + limit_s
        while not (found := self.evaluate(script)):
            assert time.monotonic() < deadline, (script, self.text()[-1500:])
            time.sleep(0.2)
        return found

    def go(self, address: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def text(self) -> str:
        """What a reader sees."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def reads(self, text: str, limit_s: float = PATIENCE_S) -> None:
        """Wait until the page says so."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})", limit_s)

    def press(self, name: str, tags: str = PRESSABLE) -> None:
        """Click on what is named so: its text, its label, its placeholder."""
        self.click(self.until(FIND % (json.dumps(name), json.dumps(tags))))

    def press_on(self, script: str) -> None:
        """Click on the element that an expression gives."""
        box = (
            f"(() => {{ const e = {script}; if (!e) return null; e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.click(self.until(box))

    def click(self, place: list[float]) -> None:
        """Click there."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], **button)
        time.sleep(0.3)

    def type(self, text: str) -> None:
        """Type over what is in the field that has the focus."""
        self.evaluate("document.activeElement.select && document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def key(self, name: str, code: int) -> None:
        """Press one key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        """Keep what the page looks like now."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a browser of its own; `folder` holds its profile."""
    found = program()
    assert found is not None, "no Chromium here (Debian: apt install chromium)"
    command = [
        found, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run",
        f"--window-size={WIDTH},{HEIGHT}", "--hide-scrollbars", "--disable-gpu", "--disable-dev-shm-usage",
        # the sandbox of Chromium refuses to work for root
        *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with connect(_page_of(folder), max_size=None) as socket:
                page = Page(socket)
                page.call("Page.enable")
                yield page
        finally:
            process.terminate()


def _page_of(folder: Path) -> str:
    """The address of the browser's page, once it is there."""
    deadline = time.monotonic() + PATIENCE_S
    written = folder / "DevToolsActivePort"
    while not written.exists() or not written.read_text().strip():
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.1)
    port = written.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
        pages = [each for each in json.load(answer) if each["type"] == "page"]
    return str(pages[0]["webSocketDebuggerUrl"])
