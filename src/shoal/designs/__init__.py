"""Choosing how to perturb each label's answer: one small file per method, over one problem and one mechanism."""
