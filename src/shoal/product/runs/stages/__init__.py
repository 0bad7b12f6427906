"""The stages that kinds of release share, one file each: ``stage(work) -> StageOutcome``."""
