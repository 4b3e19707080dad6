"""Browsers with a page of ours in them, which says over loopback what reached it."""

import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from desktop_rig import Program, until
from lacking_desktop import missing_here

PAGE = Path(__file__).resolve().parent / "apps" / "page.html"
TITLE = "Order form"
COMMANDS = {"chromium": "chromium", "firefox": "firefox-esr"}
# No first pages, no questions, and nothing that Firefox would ask its makers for.
_FIREFOX_SETTINGS = {
    "browser.aboutwelcome.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "datareporting.policy.firstRunURL": "",
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "browser.tabs.warnOnClose": False,
    "app.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "signon.rememberSignons": False,
}


class Page:
    """The page on a loopback port, and what it said last."""

    def __init__(self):
        self.state = {}
        self.lock = threading.Lock()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                there = self.path == "/"
                self.send_response(200 if there else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(PAGE.read_bytes() if there else b"")

            def do_POST(self):
                newest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with page.lock:
                    page.state = max(page.state, newest, key=lambda state: state.get("told", 0))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class Browser(Program):
    """As `Program`, its state being the page's."""

    def __init__(self, process, page, profile):
        super().__init__(process, None, TITLE)
        self.page = page
        self.profile = profile

    @property
    def state(self):
        return self.page.state

    def kill(self):
        super().kill()
        self.page.close()
        shutil.rmtree(self.profile, ignore_errors=True)


def open_browser(desktop, name, *, env=None):
    """A window of a browser that runs as root in a test: no sandbox of its own, elements shown from the start."""
    command = COMMANDS[name]
    if shutil.which(command) is None:
        missing_here(f"{command} is not installed: sh tools/setup.sh packages")
    env = env or {}
    wayland = (desktop.environment | env)["GDK_BACKEND"] == "wayland"
    profile = desktop.directory / f"{name}-{os.urandom(4).hex()}"
    profile.mkdir()
    page = Page()
    if name == "chromium":
        options = [
            f"--user-data-dir={profile}",
            "--no-sandbox",
            "--no-first-run",
            "--password-store=basic",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--force-renderer-accessibility",
            f"--ozone-platform={'wayland' if wayland else 'x11'}",
            "--window-size=800,700",
            # A window without tabs and address: what is tried is the page.
            f"--app={page.url}",
        ]
    else:
        lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});\n" for key, value in _FIREFOX_SETTINGS.items()]
        (profile / "user.js").write_text("".join(lines))
        options = ["--new-instance", "--profile", str(profile), "--width", "800", "--height", "700", page.url]
        env = {**env, "GNOME_ACCESSIBILITY": "1", "MOZ_ENABLE_WAYLAND": "1" if wayland else "0"}
    process = desktop.spawn(command, *options, env=env)
    browser = Browser(process, page, profile)
    try:
        until(lambda: page.state.get("ready") or process.poll() is not None, f"{name} shows the page")
        assert process.poll() is None, f"{name} ended with {process.returncode}"
    except BaseException:
        browser.kill()
        raise
    return browser
