"""Find a Chromium for the browser tests, or install one:  python tests/browser/chromium.py

Looked for: what EDGEWISE_CHROMIUM names, the system's own, Playwright's. Installed: the system's package where that is
allowed (root, apt), or else Playwright's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
# Nobody waits longer than this for a download that may never come.
PATIENCE = 300
SKIPPED = (
    "no Chromium was found, and none could be installed; install one (Debian: apt install chromium), or set "
    "EDGEWISE_CHROMIUM to the path of one"
)


def find() -> str | None:
    """The path of a Chromium that is there."""
    named = os.environ.get("EDGEWISE_CHROMIUM")
    if named:
        return named
    installed = [path for name in NAMES if (path := shutil.which(name))] + [MAC]
    return next(filter(_starts, installed), None) or _playwrights()


def _starts(path: str) -> bool:
    """Return whether a program starts. Ubuntu's chromium-browser may only say that Chromium is a snap."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _playwrights() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as driver:
        path = driver.chromium.executable_path
    return path if _starts(path) else None


def install() -> None:
    """Try to install one, saying so."""
    if os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = ["-o", "Dpkg::Use-Pty=0", "-qq"]
        for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            _run(["apt-get", *quiet, *words])
    if find() is None:
        _run([sys.executable, "-m", "playwright", "install", "chromium"])


def _run(command: list[str]) -> None:
    print("browser tests:", " ".join(command), flush=True)
    try:
        subprocess.run(
            command,
            timeout=PATIENCE,
            check=False,
            capture_output=True,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"browser tests: {error}")


if __name__ == "__main__":
    if find() is None:
        install()
    print(f"browser tests: {find() or SKIPPED}")
