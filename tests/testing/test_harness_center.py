from testing.harness_cases import agrees


def test_on_laws():
    agrees("center", 0.5)


def test_on_constants():
    agrees("center", 0.5, random=False)
