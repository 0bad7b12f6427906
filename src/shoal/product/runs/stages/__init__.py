"""The stages of a run, one file each: a frozen task, ``do(task)``, which runs anywhere, and ``merge`` over shards."""
