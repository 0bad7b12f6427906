from testing.harness_cases import agrees


def test_on_laws():
    agrees("additive", 0.5)


def test_on_constants():
    agrees("additive", 0.5, random=False)
