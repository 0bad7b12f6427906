"""The paper's two experiments, with its accounting and with ours."""
