"""Studies for a privacy officer: could somebody find a household in this?"""
