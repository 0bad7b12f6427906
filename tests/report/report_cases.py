"""What several tests of the report share."""

from __future__ import annotations

#: A label that tries everything.
NASTY = "</script><img src=x onerror=\"document.title='caught'\">{{script}}&amp;"
