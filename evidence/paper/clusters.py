"""The neighbors of the paper's meter study: complete inside k-means clusters of households."""

from __future__ import annotations

from shoal import validation
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.product.sources.meters.predictive_laws import Forecasts


def cluster_graph(forecasts: Forecasts, n_clusters: int = 6, seed: int = 0, *, by: str = "profile") -> NeighborGraph:
    """Complete inside each k-means cluster of households (the paper has six): scikit-learn, best of ten starts.

    ``by`` says what is clustered: ``"profile"``, the mean log power over the season's period in the training window,
    or ``"forecast"``, the point forecast in log power.
    """
    from sklearn.cluster import KMeans

    by = validation.choice(("profile", "forecast"), by=by)
    points = forecasts.season.profile if by == "profile" else forecasts.log_mean
    n_clusters = validation.count(n_clusters=n_clusters)
    seed = validation.count(at_least=0, seed=seed)
    if n_clusters > len(points):
        raise InputError(f"n_clusters must not exceed the number of households ({len(points)})")
    clusters = KMeans(n_clusters=n_clusters, n_init=10, random_state=seed).fit_predict(points)
    return NeighborGraph.within_groups(forecasts.households, clusters.tolist())
