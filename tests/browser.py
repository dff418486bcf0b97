"""Pages in a real browser: what a script sees in them."""

import base64
import json
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(shutil.which, ("chromium", "chromium-browser", "google-chrome")), None)
RUN = """<script>
const out = document.createElement("pre");
out.id = "seen";
out.textContent = btoa(encodeURIComponent(JSON.stringify((() => { %s })())));
document.body.append(out);
</script>"""


def evaluate(page: str, script: str, folder: Path) -> Any:
    """What the body of a function returns that runs in a page, HTML; the test is skipped without Chromium."""
    if BROWSER is None:
        pytest.skip("there is no Chromium")
    path = folder / "page.html"
    path.write_text(page.replace("</body>", RUN % script + "</body>"), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--dump-dom"]
    done = subprocess.run([BROWSER, *options, path.as_uri()], capture_output=True, text=True, timeout=120)
    seen = re.search(r'<pre id="seen">([^<]+)</pre>', done.stdout)
    assert seen, done.stderr[-2000:]
    return json.loads(urllib.parse.unquote(base64.b64decode(seen[1]).decode()))
