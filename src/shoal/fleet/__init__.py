"""Runs over more meters than memory holds: shards on disk, each stage a pure function from shard to shard."""
