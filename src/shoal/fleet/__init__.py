"""Many households: readings in shards, every stage a function from shard to shard, on any executor."""
