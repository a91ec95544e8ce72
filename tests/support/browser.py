# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools protocol through two pipes.

    if chromium() is None: ...           # the test is left out
    browser = Browser()
    browser.open(path, width=360, dark=True)
    browser.evaluate("document.title"), browser.messages, browser.press("Tab"), browser.picture("page.png")
    browser.close()
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time


def chromium():
    """The program, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="weft-browser-")
        theirs, self.to = os.pipe()
        self.back, answers = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{theirs} 4>&{answers}'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", f"--user-data-dir={self.profile}",
                 "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", command, chromium(), *flags], pass_fds=(theirs, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=os.environ | {"HOME": self.profile})
        os.close(theirs)
        os.close(answers)
        self.number, self.rest, self.session, self.messages, self.requests, self.loaded = 0, b"", None, [], [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.back, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError("Chromium does not answer")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(line)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str(parameters["args"]))
        if method == "Runtime.exceptionThrown":
            self.messages.append(str(parameters["exceptionDetails"]))
        if method == "Log.entryAdded":
            self.messages.append(parameters["entry"]["text"])
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        if method == "Page.loadEventFired":
            self.loaded = True
        return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        deadline = time.monotonic() + 60
        while (answer := self.receive(deadline)).get("id") != self.number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width=1200, dark=False, deficiency="none"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setEmulatedVisionDeficiency", type=deficiency)
        self.loaded, self.requests = False, []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        deadline = time.monotonic() + 60
        while not self.loaded:
            self.receive(deadline)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key):
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **(text if kind == "keyDown" else {}))

    def picture(self, path, height=None):
        size = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": height or size[1], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)


if __name__ == "__main__":  # python3 tests/support/browser.py PAGE FILE.png WIDTH HEIGHT: a picture of the page's begin
    browser = Browser()
    browser.open(sys.argv[1], width=int(sys.argv[3]))
    browser.picture(sys.argv[2], height=int(sys.argv[4]))
    browser.close()
