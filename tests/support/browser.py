"""Headless Chromium for tests, spoken to through a pipe.

Opens a page at a width, tells what it asked for, said and looks like.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Browser:
    """One page; `events` holds what the browser has told since it was started."""

    words: int
    answers: Any
    events: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    number: int = 0

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | (
            {"sessionId": self.session} if self.session else {}
        )
        os.write(self.words, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.hear()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def hear(self) -> dict[str, Any]:
        """The next message; those that answer nothing are kept."""
        text = bytearray()
        while (byte := self.answers.read(1)) not in (b"\0", b""):
            text += byte
        assert text, "chromium has ended"
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page: Path, *, width: int, is_dark: bool = False) -> None:
        """Show a page and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.hear()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    def photograph(self, file: Path) -> None:
        """The whole page as PNG."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    @property
    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """What the page has said on the console, and what the browser says about it."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in kinds]


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser of its own, ended with the block."""
    to_browser, words = os.pipe()
    answers, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        # The protocol's pipes are the file descriptors 3 and 4.
        shell = f"exec chromium {shlex.join(options)} 3<&{to_browser} 4>&{from_browser}"
        process = subprocess.Popen(
            ["bash", "-c", shell],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
            # It writes there, too, and not everybody's home can be written.
            env={**os.environ, "HOME": profile},
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            with os.fdopen(answers, "rb") as stream:
                yield _attached(Browser(words, stream))
        finally:
            os.close(words)
            process.kill()
            process.wait()


def _attached(browser: Browser) -> Browser:
    target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Network", "Runtime", "Log"):
        browser.ask(f"{domain}.enable")
    return browser
