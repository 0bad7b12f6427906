import numpy as np

import shoal
from testing.harness_cases import laws

DRAWS = 4000


def test_it_keeps_its_epsilon_and_not_half_of_it():
    classes, graph = laws(random=False)
    book = shoal.codebook(classes.means, graph, epsilon=2.0)
    held = shoal.testing.check_mechanism(book.release, classes, graph, 2.0, 0.0, n=DRAWS)
    assert held.verdict == "consistent"
    half = shoal.testing.check_mechanism(book.release, classes, graph, 1.0, 0.0, n=DRAWS)
    assert half.verdict == "violated"
    assert half.by == "counting"
    assert half.delta_lower <= book.curve(1.0).delta_upper
    assert (book.insider_error == 0).all()
    assert np.isclose(book.certificate.delta_noise_alone, 0.0)
