"""Exact privacy of Gaussian class laws: spectrum, contour integral, curves, composition and what follows from them."""
