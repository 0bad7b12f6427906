from testing.harness_cases import agrees


def test_on_laws():
    agrees("transport", 0.5)


def test_on_constants():
    agrees("transport", 0.5, random=False)
