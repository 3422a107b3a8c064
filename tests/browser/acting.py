"""People who act on real tasks of a demo, each in a browser of their own; and what /proc says."""

import json
import os
import random
import secrets
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from agent.backends.simulation.jobs import jobs_at, next_change_at
from tests.demos import Demo, soon
from tests.integration.visitors import PASSWORD
from tests.patience import GIVE_UP_S

# Those of the pointer: Enter on a button makes one without `detail`.
CLICKS = """addEventListener("click", ({ isTrusted, detail }) => {
    if (isTrusted && detail > 0) sessionStorage.clicks = 1 + Number(sessionStorage.clicks ?? 0);
}, true);"""
STEADY_S = 600.0


def send(demo: Demo, method: str, path: str, body: object = None) -> Any:
    info = demo.info()
    request = urllib.request.Request(
        f"{info['url']}/api/v1/{path}", method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {info['token']}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=GIVE_UP_S) as answer:
        raw = answer.read()
    return json.loads(raw) if raw else None


def is_alive(pid: int) -> bool:
    """A zombie that its parent has not reaped yet has ended."""
    state = state_of(pid)
    return state is not None and state not in "ZX"


def state_of(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def tasks(demo: Demo) -> list[dict[str, Any]]:
    """The real ones, as the page lists them, without those that have just ended."""
    real = {task["id"] for task in demo.info()["tasks"]}
    return [task for task in demo.get("/api/v1/tasks?limit=1000")["items"]
            if task["id"] in real and is_alive(task["pid"])]


def busy_seed(nodes: int, gpus: int, least: int) -> int:
    """Return a seed that gives the demo at least so many jobs now, and none that begins or ends
    by itself in the next ten minutes. A third of all seeds give fewer, depending on the hour."""
    uuids = tuple(f"GPU-{number}" for number in range(gpus))

    names = [f"n{node:03}" for node in range(1, nodes + 1)]
    now = time.time()
    while True:
        seed = random.randrange(10**6)
        jobs = sum(len(jobs_at(seed, name, uuids, now)) for name in names)
        change_at = min(next_change_at(seed, name, gpus, now) for name in names)
        if jobs >= least and change_at > now + STEADY_S:
            return seed


def age_s(pid: int) -> float:
    """Return the age of a process, 0 of one that has ended; what a demo says of its tasks is made
    up."""
    try:
        start_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    now_s = float(Path("/proc/uptime").read_text().split()[0])
    return now_s - start_ticks / os.sysconf("SC_CLK_TCK")


def jobs(demo: Demo) -> list[list[dict[str, Any]]]:
    """Return the real tasks of each job, in random order."""
    jobs_by_key: dict[str, list[dict[str, Any]]] = {}
    for task in tasks(demo):
        jobs_by_key.setdefault(f"{task['node']}/{task['job_id']}", []).append(task)
    return random.sample(list(jobs_by_key.values()), len(jobs_by_key))


def living(tasks_to_check: Iterable[dict[str, Any]]) -> set[int]:
    return {task["pid"] for task in tasks_to_check if is_alive(task["pid"])}


class Somebody:
    """Signed in, with all that must not happen in `trouble`."""

    def __init__(self, browser: Browser, demo: Demo, name: str, password: str, **look: Any) -> None:
        self.demo, self.name, self.password = demo, name, password
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **look})
        self.trouble: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(f"{error}"))
        self.page.on("console", self._on_console)
        self.page.goto(f"{demo.url}/sign-in", wait_until="commit")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        # Who has a name on the machines comes to their own work, the others to the fleet.
        self.page.wait_for_url(lambda url: not url.endswith("/sign-in"), wait_until="commit")

    def _on_console(self, message: Any) -> None:
        # The browser logs each refused request and closed socket by itself.
        by_browser = ("Failed to load resource", "WebSocket connection to")
        if message.type in ("error", "warning") and not message.text.startswith(by_browser):
            self.trouble.append(message.text)

    def open(self, path: str) -> "Somebody":
        self.page.goto(f"{self.demo.url}{path}", wait_until="commit")
        self.page.locator("#link.live").wait_for()
        return self

    def row(self, task: dict[str, Any]) -> Locator:
        return self.page.locator(f".t-row[data-task='{task['id']}']")

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog.act-dialog[open]")

    @property
    def yes(self) -> Locator:
        """The one button that does it."""
        return self.dialog.locator(".act-foot .button").last

    def sort_by(self, key: str) -> None:
        """Sort the table without moving the pointer."""
        self.page.locator(f"button[data-sort={key}]").evaluate("button => button.click()")

    def count_clicks(self) -> None:
        """Count clicks from here on, also over pages."""
        self.context.add_init_script(CLICKS)
        self.page.evaluate(f"sessionStorage.clicks = 0; {CLICKS}")

    def clicks(self) -> int:
        return int(self.page.evaluate("sessionStorage.clicks"))

    def give_reason(self, reason: str) -> None:
        self.dialog.locator(".act-item").first.wait_for()
        self.dialog.locator("[name=reason]").fill(reason)
        password = self.dialog.locator("[name=password]")
        if password.is_visible():
            password.fill(self.password)

    def end_quickly(self) -> None:
        """Choose a short grace period, for tasks that heed no SIGTERM."""
        self.dialog.locator(".act-item").first.wait_for()
        options = self.dialog.locator(".act-how summary")
        # What comes may be a refusal, and then there is nothing to choose.
        assert soon(options.is_visible), self.dialog.inner_text()
        options.click()
        self.dialog.locator("[name=grace_s]").fill("2")
        assert soon(lambda: "2 s grace period" in self.dialog.inner_text())

    def close(self) -> None:
        self.context.close()
        assert self.trouble == [], self.trouble


def add_person(demo: Demo, role: str, owns: str | None = None) -> tuple[str, str]:
    name, password = f"{role}{random.randrange(10**6)}", secrets.token_urlsafe(12)
    send(demo, "POST", "users", {"name": name, "role": role, "groups": ["*"],
                                 "unix_names": [owns] if owns else [], "password": password})
    return name, password


def confirm(page: Page, button: Locator, reason: str) -> None:
    button.click()
    dialog = page.locator("dialog.act-dialog[open]")
    dialog.locator(".act-changes").first.wait_for()
    dialog.locator("[name=reason]").fill(reason)
    password = dialog.locator("[name=password]")
    if password.is_visible():
        password.fill(PASSWORD)
    yes = dialog.locator(".act-foot .button").last
    expect(yes).to_be_enabled()
    yes.click()
    expect(dialog.locator(".act[data-state=done]")).to_be_visible()
    page.get_by_role("button", name="Close", exact=True).last.click()
