from testing.harness_cases import agrees


def test_on_laws():
    agrees("mean", 0.5)


def test_on_constants():
    agrees("mean", 0.5, random=False)
