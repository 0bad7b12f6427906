from testing.harness_cases import agrees


def test_on_laws():
    agrees("paper", 0.5)


def test_on_constants():
    agrees("paper", 0.5, random=False)
