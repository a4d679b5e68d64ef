"""The web console: static files that use the public HTTP API and nothing else. No build step, no request elsewhere.

Owns        `pages/`: HTML, style sheets and ES modules, and in `pages/vendor` the libraries that they use
Leaves      serving the files to `wire.http.console`, data to the HTTP API

`vendor/vendor.json` names version, licence and hash of each vendored file; `tools.console_vendor` makes it.
"""

from pathlib import Path
from typing import Final

PAGES: Final = Path(__file__).parent / "pages"
