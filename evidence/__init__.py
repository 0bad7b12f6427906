"""What shoal's claims rest on: the paper's experiments, prices and risks on real homes, what today's rules give.

Run from a checkout as ``python -m evidence``; not part of the installed package. Real homes are read where they are at
hand, in ``../shared/data``; what is stored in ``results/`` are figures over all homes, no home's own.
"""
