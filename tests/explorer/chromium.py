"""Headless Chromium through the DevTools protocol, over a pipe: no driver and no package is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser", "browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""The program of Debian's package `chromium`, or None."""

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, " ": 32, "Escape": 27, "Tab": 9}


class Browser:
    """One tab. `requests` has the address of everything that the page has asked for."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._in, self._id, self._rest = out, into, 0, b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium did not answer")
            self._rest += os.read(self._out, 1 << 16)
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        return message

    def send(self, method: str, timeout: float = 60.0, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._id += 1
        call = {"id": self._id, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._in, json.dumps(call).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while (message := self._message(deadline)).get("id") != self._id:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def wait_for(self, method: str, timeout: float = 60.0) -> None:
        """Wait for an event."""
        deadline = time.monotonic() + timeout
        while self._message(deadline).get("method") != method:
            pass

    def open(self, address: str) -> None:
        """Load a page from the beginning, also if only the part behind # differs."""
        self.send("Page.navigate", url="about:blank")
        self.wait_for("Page.loadEventFired")
        self.send("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired")
        self.requests = [each for each in self.requests if not each.startswith("about:")]

    def run(self, expression: str) -> Any:
        """Evaluate JavaScript and return its JSON value."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of an element; a field's value."""
        read = "(e => 'value' in e && e.tagName !== 'BUTTON' ? e.value : e.innerText)"
        found: str = self.run(f"{read}(document.querySelector({json.dumps(selector)}))")
        return found

    def click(self, selector: str) -> None:
        """Move the mouse to the middle of an element and click. The element must be there, visible and uncovered."""
        place = self.run(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) return 'there is no element';
            e.scrollIntoView({{block: 'center', inline: 'center'}});
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            const top = document.elementFromPoint(x, y);
            if (e === top || e.contains(top) || top?.contains(e)) return [x, y];
            return `covered by ${{top?.outerHTML.slice(0, 80)}}`;
        }})()""")
        assert isinstance(place, list), f"{selector}: {place}"
        x, y = place
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, selector: str, value: str) -> None:
        """Choose an entry of a list, as a click on it does."""
        self.run(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (![...e.options].some((o) => o.value === {json.dumps(value)})) throw new Error('no entry {value}');
            e.value = {json.dumps(value)};
            e.dispatchEvent(new Event('change', {{bubbles: true}}));
        }})()""")

    def slide(self, selector: str, value: float) -> None:
        """Move a slider to a value."""
        self.run(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.value = {value};
            e.dispatchEvent(new Event('input', {{bubbles: true}}));
        }})()""")

    def type(self, text: str, selector: str | None = None) -> None:
        """Click a field, replace its text, and type."""
        if selector is not None:
            self.click(selector)
            self.run(f"document.querySelector({json.dumps(selector)}).select()")
        for letter in text:
            self.send("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def key(self, key: str) -> None:
        """Press a key."""
        code = KEYS.get(key, ord(key.upper()[0]))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        more = {} if text is None else {"text": text}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def size(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a profile in a folder, without a network."""
    assert CHROMIUM is not None
    read_calls, write_calls = os.pipe()
    read_answers, write_answers = os.pipe()
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder}", "--remote-debugging-pipe",
    ]  # fmt: skip
    shell = f'exec "$@" 3<&{read_calls} 4>&{write_answers}'
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *command], pass_fds=(read_calls, write_answers), stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(read_calls)
    os.close(write_answers)
    try:
        yield Browser(read_answers, write_calls)
    finally:
        os.close(write_calls)
        os.close(read_answers)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
