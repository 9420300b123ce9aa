#!/usr/bin/env python3
"""The live page of a running server in a real browser: `check` says what is on it, as JSON, `shoot`
takes pictures of it. ADVICE, a file of JSON, stands for what the server would answer to /advice.

    live.py check URL [--token TOKEN] [--advice FILE]
    live.py cuts URL
    live.py ends URL PID,PID
    live.py shoot URL STEM [--advice FILE] [--height N] [--volume NAME]
"""
import argparse
import json
import os
import signal
import time
from pathlib import Path

from browser import PAINTED, PATIENCE_S, Browser

# Figures have come and are drawn.
READY = """(() => !document.getElementById("main").hidden && document.querySelectorAll(".charts .uplot canvas").length >= 6
  && document.querySelectorAll("#volumes tbody tr").length > 0)()"""

# What a reader sees.
SEEN = "(() => {" + PAINTED + """ return {
  title: document.title,
  painted: [...document.querySelectorAll(".uplot canvas")].map(painted),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  link: document.getElementById("link").textContent,
  said: [...document.querySelectorAll("#answer li")].map(item => item.textContent),
  volumes: [...document.querySelectorAll("#volumes tbody tr")].map(row => [...row.cells].map(cell => cell.textContent)),
  clients: [...document.querySelectorAll("#clients tbody tr")].map(row => row.cells[0].textContent),
  markup: document.querySelectorAll("main b, main script, main img, main iframe").length,
  advice: [...document.querySelectorAll("#advice-said li")].map(item => item.textContent),
  advice_hidden: document.getElementById("advice").hidden,
  labels: [...document.querySelectorAll(".plot")].map(plot => plot.getAttribute("aria-label")),
  headings: [...document.querySelectorAll("h1, h2")].filter(h => h.offsetParent).map(h => h.textContent),
  door: !document.getElementById("door").hidden,
  address: location.href,
};})()"""

# The elements that the Tab key reaches, in their order.
FOCUSED = """(() => { const at = document.activeElement; return at === document.body ? "" : (at.id || at.className || at.tagName) + ":" + at.textContent.slice(0, 40); })()"""


def wait_for(browser, expression, what):
    deadline = time.monotonic() + PATIENCE_S
    while not browser.value(expression):
        if time.monotonic() > deadline:
            raise TimeoutError(f"live: {what}: " + browser.value("document.body.innerText.slice(0, 2000)"))
        time.sleep(0.1)


def answer_for_advice(browser, path):
    """What the page's own script gets when it asks for the advice."""
    text = json.dumps(Path(path).read_text())
    script = ("const real = window.fetch; window.fetch = (url, options) => String(url) === 'advice' "
              f"? Promise.resolve(new Response({text})) : real(url, options);")
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)


def press(browser, key, code=0, text=""):
    for kind in ["keyDown", "keyUp"]:
        extra = {"text": text} if text and kind == "keyDown" else {}
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                     windowsVirtualKeyCode=code, **extra)


def by_keyboard(browser):
    """Walks over the page by Tab, and chooses the last volume by Enter on its button."""
    browser.value("document.activeElement.blur()")
    reached = []
    for _ in range(120):
        press(browser, "Tab", 9)
        at = browser.value(FOCUSED)
        if not at or at in reached:
            break
        reached.append(at)
    browser.value("[...document.querySelectorAll('#volumes tbody button')].at(-1).focus()")
    press(browser, "Enter", 13, "\r")
    time.sleep(0.3)
    chosen = browser.value("document.getElementById('chosen').textContent")
    kept = browser.value(FOCUSED)
    browser.value("document.querySelector('#volumes tbody button').click()")
    return {"reached": reached, "chosen": chosen, "focus": kept}


def by_token(browser, options):
    """Shows a wrong token, then types the right one; what the page said to the first."""
    browser.show(options.url + "#token=0123456789abcdef-wrong", 1280, 900)
    wait_for(browser, "!document.getElementById('door').hidden", "it does not ask for the token")
    said = browser.value("document.getElementById('door-why').textContent")
    browser.call("Input.insertText", text=options.token)
    press(browser, "Enter", 13, "\r")
    wait_for(browser, READY, "the token is not taken")
    browser.call("Page.navigate", url="about:blank")
    return said


def check(browser, options):
    found = {"wrong": by_token(browser, options)} if options.token else {}
    url = options.url + (f"#token={options.token}" if options.token else "")
    for name, width in [("wide", 1280), ("narrow", 390)]:
        browser.show(url, width, 900)
        wait_for(browser, READY, "no figures")
        # Another sample arrives while it is open, and advice, if there is any.
        before = browser.value("document.querySelector('.plot').getAttribute('aria-label')")
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline and before == browser.value(
                "document.querySelector('.plot').getAttribute('aria-label')"):
            time.sleep(0.2)
        if options.advice:
            wait_for(browser, "!document.getElementById('advice').hidden", "no advice")
        found[name] = browser.value(SEEN)
        found[name]["complaints"] = [
            said for said in browser.complaints() if "/advice" not in said and " 404 " not in said]
        if name == "wide":
            found["keyboard"] = by_keyboard(browser)
        browser.call("Page.navigate", url="about:blank")
    browser.show(options.url, 1280, 900, "dark")
    found["dark"] = browser.value("getComputedStyle(document.body).backgroundColor")
    print(json.dumps(found))


def cuts(browser, options):
    """Says what the page says of its connection when that is cut, and when it is back."""
    found = {"lost": [], "live": []}
    browser.show(options.url, 1280, 900)
    wait_for(browser, READY, "no figures")
    for _ in range(2):
        for state in ["lost", "live"]:
            wait_for(browser, f"document.getElementById('link').className === '{state}'", f"is not {state}")
            found[state].append(browser.value("document.getElementById('link').textContent"))
    print(json.dumps(found))


def ends(browser, options):
    """Says what the page says before a process ends, and after each of these has ended."""
    found = {"said": [], "events": [], "titles": []}
    browser.show(options.url, 1280, 900)
    wait_for(browser, READY, "no figures")
    first = "(document.querySelector('#answer li') || {}).textContent"
    for pid in [None, *options.stem.split(",")]:
        if pid:
            before = browser.value(first)
            os.kill(int(pid), signal.SIGKILL)
            wait_for(browser, f"{first} !== {json.dumps(before)}", "it says the same as before")
        found["said"].append(browser.value("[...document.querySelectorAll('#answer li')].map(item => item.textContent)"))
        found["events"].append(browser.value("[...document.querySelectorAll('#events tbody tr')].map(row => row.textContent)"))
        found["titles"].append(browser.value("document.title"))
    if options.picture:
        browser.picture(options.picture, True, 900)
    print(json.dumps(found))


def shoot(browser, options):
    for width, size in [("wide", 1280), ("narrow", 390)]:
        for scheme in ["light", "dark"]:
            browser.show(options.url, size, 900, scheme)
            wait_for(browser, READY, "no figures")
            if options.advice:
                wait_for(browser, "!document.getElementById('advice').hidden", "no advice")
            if options.volume:
                browser.value("[...document.querySelectorAll('#volumes button')].find(button => "
                              f"button.textContent === {json.dumps(options.volume)}).click()")
            time.sleep(4.5)
            name = "" if scheme == "light" else "-dark"
            browser.picture(f"{options.stem}-{width}{name}.png", True, options.height)
            browser.call("Page.navigate", url="about:blank")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=["check", "cuts", "ends", "shoot"])
    parser.add_argument("url")
    parser.add_argument("stem", nargs="?")
    for name in ["--token", "--advice", "--volume", "--picture"]:
        parser.add_argument(name)
    parser.add_argument("--height", type=int)
    options = parser.parse_args()
    browser = Browser()
    try:
        if options.advice:
            answer_for_advice(browser, options.advice)
        {"check": check, "cuts": cuts, "ends": ends, "shoot": shoot}[options.work](browser, options)
    finally:
        browser.end()


if __name__ == "__main__":
    main()
