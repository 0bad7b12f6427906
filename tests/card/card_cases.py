"""What several tests of the card share."""

from __future__ import annotations

#: A name that tries everything.
NASTY = "</script><img src=x onerror=\"document.title='caught'\">{{ 7*7 }}{% raw %}&amp;" + "wide" * 40
