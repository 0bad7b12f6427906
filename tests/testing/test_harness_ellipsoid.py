from testing.harness_cases import agrees


def test_on_laws():
    agrees("ellipsoid", 0.5)


def test_on_constants():
    agrees("ellipsoid", 0.5, random=False)
