#!/usr/bin/env python3
"""A page of HTML in a real browser: `check` looks at its curves, tables and console, `shoot` takes
pictures of it, wide and narrow, light and dark.

Talks to Debian's chromium by its DevTools protocol, over two pipes: needs no package of Python.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 60

# How many colours a canvas has.
PAINTED = """const painted = canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) seen.add((data[i] >> 4) * 256 + (data[i + 1] >> 4) * 16 + (data[i + 2] >> 4));
    return seen.size;
  };"""

# What a page that works looks like, as a function of the page itself.
LOOK = "(() => {" + PAINTED + """
  const sorted = [...document.querySelectorAll("figure.table table")].map(table => {
    const numbers = [...table.tHead.rows[0].cells].findIndex(head => head.classList.contains("number"));
    const column = Math.max(numbers, 0);
    const values = () => [...table.tBodies[0].rows].map(row => Number(row.cells[column].dataset.value));
    const before = values().sort((a, b) => a - b);
    const button = table.tHead.rows[0].cells[column].firstElementChild;
    button.click();
    const down = values();
    button.click();
    const up = values();
    const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
    return same(up, before) && same(down, [...before].reverse());
  });
  const names = [...document.querySelectorAll(".u-legend .u-series:not(:first-child)")];
  const before = names.length ? names[0].classList.contains("u-off") : null;
  if (names.length) names[0].querySelector("th").click();
  const switched = names.length ? names[0].classList.contains("u-off") !== before : null;
  if (names.length) names[0].querySelector("th").click();
  const cut = [...document.querySelectorAll(".scroll")].filter(table => table.scrollWidth > table.clientWidth);
  return {
    title: document.querySelector("h1").textContent,
    answer: document.querySelectorAll(".answer li").length,
    charts: document.querySelectorAll("figure.chart").length,
    painted: [...document.querySelectorAll(".uplot canvas")].map(painted),
    series: names.length, switched, sorted,
    resources: performance.getEntriesByType("resource").length,
    scripts: document.scripts.length,
    begins: [...document.querySelectorAll("figure.chart .begins")].map(begins => begins.textContent),
    // Tables that go on beyond the screen, and those of them that show it.
    cut: cut.length, shaded: cut.filter(table => getComputedStyle(table).backgroundAttachment.includes("local")).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
})()"""


class Browser:
    """A chromium without a window, and the one page in it."""

    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if not program:
            sys.exit("browser: chromium is not installed")
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self.commands = os.pipe()
        self.answers, write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", "--disable-extensions",
                   "--hide-scrollbars", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder.name}", "about:blank"]
        # Chromium reads commands from 3 and writes answers to 4.
        shell = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        environment = {**os.environ, "HOME": self.folder.name}
        self.process = subprocess.Popen(
            ["sh", "-c", shell, program, *options], pass_fds=(read, write), env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        self.buffer, self.number, self.events = b"", 0, []
        self.session = None
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(info for info in target if info["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError("browser: no answer")
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                raise EOFError("browser: chromium ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait(self, event):
        deadline = time.monotonic() + PATIENCE_S
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self.message(deadline))

    def show(self, page, width, height, scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.events.clear()
        url = page if "://" in str(page) else Path(page).resolve().as_uri()
        self.origin = url.split("#")[0].split("/", 3)[:3]
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def value(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def complaints(self):
        """Errors of the page, and what it asked of the network."""
        said = []
        for message in self.events:
            method, params = message.get("method"), message.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"].get("exception", {}).get("description", "error"))
            elif method == "Runtime.consoleAPICalled":
                said.append("console: " + json.dumps(params["args"]))
            elif method == "Log.entryAdded":
                said.append("log: " + params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:")) and url.split("/", 3)[:3] != self.origin:
                    said.append("request: " + url)
        return said

    def picture(self, path, whole, height=None):
        options = {"format": "png"}
        if whole or height:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            tall = min(size["height"], height or size["height"])
            options.update(captureBeyondViewport=True,
                           clip={"x": 0, "y": 0, "width": size["width"], "height": tall, "scale": 1})
        data = self.call("Page.captureScreenshot", **options)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def end(self):
        try:
            os.close(self.commands)
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


def check(browser, page):
    """Prints what the page looks like, as JSON, at both widths."""
    found = {}
    for name, width in [("wide", 1280), ("narrow", 390)]:
        browser.show(page, width, 900)
        time.sleep(0.2)
        found[name] = browser.value(LOOK)
        found[name]["complaints"] = browser.complaints()
    browser.show(page, 1280, 900, "dark")
    found["dark"] = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.show(page, 800, 900, "dark", "print")
    found["print"] = browser.value("getComputedStyle(document.body).backgroundColor")
    print(json.dumps(found))


def shoot(browser, page, stem, height):
    """Pictures STEM-wide.png, STEM-narrow-dark.png and so on; whole pages, or so much of them. And
    STEM-print.png, as on paper, whole."""
    for width, size in [("wide", 1280), ("narrow", 390)]:
        for scheme in ["light", "dark"]:
            browser.show(page, size, 900, scheme)
            time.sleep(0.3)
            name = "" if scheme == "light" else "-dark"
            browser.picture(f"{stem}-{width}{name}.png", True, height)
    browser.show(page, 800, 1100, media="print")
    time.sleep(0.3)
    browser.picture(f"{stem}-print.png", True)


def main():
    usage = "usage: browser.py check PAGE | browser.py shoot PAGE STEM [HEIGHT]"
    match sys.argv[1:]:
        case ["check", page]:
            work = lambda browser: check(browser, page)
        case ["shoot", page, stem, *height] if len(height) < 2:
            work = lambda browser: shoot(browser, page, stem, int(height[0]) if height else None)
        case _:
            sys.exit(usage)
    browser = Browser()
    try:
        work(browser)
    finally:
        browser.end()


if __name__ == "__main__":
    main()
