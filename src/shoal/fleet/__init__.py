"""Any number of households: shards, and the stages of a run over them."""
