"""The run: from a meter file to a private forecast, stage by stage over one folder."""
