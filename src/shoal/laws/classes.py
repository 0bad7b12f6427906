"""The laws of the answer given each label: q | X ~ N(μ_X, Σ_X)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.laws.checks import LawChecks
from shoal.laws.estimates import FittedLaws, fit_laws
from shoal.numerics.matrices import EPS, RANK_TOLERANCE, correlations, split_stack, square_root, sum_with_error
from shoal.validation import FloatArray, IndexArray

#: Largest asymmetry, relative to the largest entry, that is taken for rounding and repaired.
ASYMMETRY = 1e-9
#: Relative error of a Cholesky factor up to which errors of a law are measured by it.
FACTORED = 0.1


def indefinite_tolerance(n_dims: int) -> float:
    """Return the share of the largest eigenvalue up to which negative ones are taken for rounding."""
    return 2 * n_dims * RANK_TOLERANCE


class GaussianClasses:
    """A family of Gaussian laws, one per label; validated once and immutable.

    Args:
        means: (n, k) array, one row per label.
        covs: (n, k, k) covariances, or one (k, k) covariance that all labels share. Full-rank, rank-deficient
            and zero covariances are all allowed. Use :meth:`diagonal` for independent entries and
            :meth:`deterministic` for answers that are constants given the label.
        labels: n strings, ``"0" .. "n-1"`` by default.

    A shared covariance is stored once and a diagonal one as its variances; ``covs`` presents either as an
    (n, k, k) array.
    """

    def __init__(self, means: Any, covs: Any, labels: Sequence[Any] | None = None) -> None:
        mu = _make_read_only(validation.array(ndim=2, means=means))
        cov = validation.array(ndim=(2, 3), covs=covs)
        n, k = _checked_shape(mu)
        if cov.shape not in ((k, k), (n, k, k)):
            raise InputError(
                f"covs must have shape ({n}, {k}, {k}), or ({k}, {k}) when shared, to match means; got {np.shape(covs)}"
            )
        self._store(mu, _make_read_only(_symmetrize(cov.reshape(-1, k, k))), None, labels)

    @classmethod
    def diagonal(cls, means: Any, variances: Any, labels: Sequence[Any] | None = None) -> GaussianClasses:
        """Return laws with independent entries: ``variances`` is (n, k), or (k,) when all labels share it.

        Returns:
            The family with Σ_X = diag(variances of X); only the variances are stored.

        >>> import shoal
        >>> shoal.GaussianClasses.diagonal([[0.0, 1.0], [2.0, 3.0]], [1.0, 4.0])
        GaussianClasses(2 labels, 2 entries, shared diagonal covariance)
        """
        mu = _make_read_only(validation.array(ndim=2, means=means))
        var = validation.array(ndim=(1, 2), variances=variances)
        n, k = _checked_shape(mu)
        if var.shape not in ((k,), (n, k)):
            raise InputError(f"variances must have shape ({n}, {k}) or ({k},), got {var.shape}")
        if (var < 0).any():
            raise InputError("variances must not be negative")
        self = cls.__new__(cls)
        self._store(mu, None, _make_read_only(np.atleast_2d(var)), labels)
        return self

    @classmethod
    def deterministic(cls, means: Any, labels: Sequence[Any] | None = None) -> GaussianClasses:
        """Return laws of answers that are constants given the label: Σ_X = 0.

        Returns:
            The family of point masses at the rows of ``means``.

        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0, 1.0], [2.0, 3.0]], labels=["a", "b"])
        >>> bool(classes.covs.any())
        False
        """
        mu = validation.array(ndim=2, means=means)
        return cls.diagonal(mu, np.zeros(mu.shape[1]), labels)

    @classmethod
    def fit(cls, samples: Any, labels: Any, *, held_out: float = 0.2, seed: int = 0) -> GaussianClasses:
        """Return laws estimated from samples: the mean and a shrunk covariance of every label's rows.

        A covariance is the label's own, shrunk towards its shape on average (oracle approximating shrinkage), mixed
        with the one pooled within all labels, which counts for as many rows as make held-out rows likeliest. A label
        with one row has the pooled covariance; entries that vary within no label are constants. Estimated laws are not
        the true ones: look at :meth:`checks`, and at :func:`shoal.model_guard` with ``training=classes``, for what
        a certificate becomes over the laws that the samples leave plausible.

        Args:
            samples: (m, k) array or frame of numbers, one row per observed answer.
            labels: m labels, one per row; they become strings and are sorted.
            held_out: share of the rows on which the pooled part is chosen and the laws are checked. The laws returned
                are fitted on all rows.
            seed: seed of the choice of held-out rows.

        Returns:
            The family, with :attr:`counts` and :meth:`checks`.

        >>> import numpy as np
        >>> import shoal
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(["a", "b"], 200)
        >>> classes = shoal.GaussianClasses.fit(rng.normal(size=(400, 2)) + (labels == "b")[:, None], labels)
        >>> classes, classes.counts.tolist(), classes.checks().holds
        (GaussianClasses(2 labels, 2 entries, shared full covariance), [200.0, 200.0], True)
        """
        names, means, covs, fitted = fit_laws(samples, labels, held_out, seed)
        result = cls(means, covs[0] if fitted.pooled_rows == np.inf else covs, names)
        result.fitted = fitted
        return result

    @classmethod
    def joint(
        cls, parts: Sequence[GaussianClasses], cross: Mapping[tuple[int, int], Any] | None = None
    ) -> GaussianClasses:
        """Return the laws of several answers about the same label, stacked into one vector.

        ``cross[a, b]`` is Cov(part a, part b) given the label, (n, k_a, k_b) or one (k_a, k_b) for all labels;
        pairs left out are independent. Dependent releases (noise used twice, overlapping horizons) must be
        accounted for in this form; independent ones may be, and give the same δ as composition.

        Returns:
            The family of the stacked answer, Σ_a k_a entries, with the rounding bounds of its parts.

        >>> import shoal
        >>> one = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]])
        >>> both = shoal.GaussianClasses.joint([one, one], cross={(0, 1): [[0.5]]})
        >>> both.covs[0].tolist()
        [[1.0, 0.5], [0.5, 1.0]]
        """
        if not parts:
            raise InputError("parts must hold at least one family")
        first = parts[0]
        if any(p.labels != first.labels for p in parts):
            raise InputError("parts must all have the same labels in the same order")
        offsets = np.cumsum([0] + [p.n_dims for p in parts])
        means = np.concatenate([p.means for p in parts], axis=1)
        cov, cov_error = np.zeros((2, *means.shape, means.shape[1]))
        mean_error = np.zeros(means.shape)
        for i, part in enumerate(parts):
            here = slice(offsets[i], offsets[i + 1])
            cov[:, here, here] = part.covs
            if part.errors is not None:
                cov_error[:, here, here], mean_error[:, here] = part.errors
        for (a, b), block in (cross or {}).items():
            if not (0 <= a < len(parts) and 0 <= b < len(parts)) or a == b:
                raise InputError("cross must be keyed by two different positions in parts")
            rows, cols = slice(offsets[a], offsets[a + 1]), slice(offsets[b], offsets[b + 1])
            values = validation.array(ndim=(2, 3), cross=block)
            shape = (parts[a].n_dims, parts[b].n_dims)
            if values.shape[-2:] != shape or (values.ndim == 3 and len(values) != first.n_classes):
                raise InputError(f"cross[{a}, {b}] must have shape {shape}, or one such block per label")
            cov[:, rows, cols] = values
            cov[:, cols, rows] = np.swapaxes(values, -1, -2)
        return cls(means, cov, first.labels).with_errors(cov_error, mean_error)

    def _store(
        self, means: FloatArray, covs: FloatArray | None, variances: FloatArray | None, labels: Sequence[Any] | None
    ) -> None:
        """Set the fields from arrays that are checked already: ``covs`` or ``variances``, the other None."""
        self.means = means
        self.labels = validation.labels(len(means), labels)
        self._stored_covs = covs
        self._stored_variances = variances
        if covs is not None:
            self._check_definite()

    # ------------------------------------------------------------------ shape and views

    @property
    def n_classes(self) -> int:
        """The number of labels, n."""
        return int(self.means.shape[0])

    @property
    def n_dims(self) -> int:
        """The number of entries of an answer, k."""
        return int(self.means.shape[1])

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each label, by name."""
        return {label: i for i, label in enumerate(self.labels)}

    @property
    def is_diagonal(self) -> bool:
        """Whether entries are independent given every label, by construction."""
        return self._stored_variances is not None

    @property
    def is_shared(self) -> bool:
        """Whether all labels have one covariance, by construction."""
        return len(self.stored_variances) == 1

    @property
    def stored_covs(self) -> FloatArray:
        """The covariances as stored, (n, k, k), or (1, k, k) when shared; made from variances if diagonal."""
        if self._stored_covs is not None:
            return self._stored_covs
        assert self._stored_variances is not None
        return _make_read_only(self._stored_variances[:, :, None] * np.eye(self.n_dims))

    @property
    def stored_variances(self) -> FloatArray:
        """The variances of the entries, (n, k), or (1, k) when the covariance is shared."""
        if self._stored_variances is not None:
            return self._stored_variances
        assert self._stored_covs is not None
        return np.asarray(np.diagonal(self._stored_covs, axis1=1, axis2=2), dtype=np.float64)

    @property
    def covs(self) -> FloatArray:
        """The covariances, (n, k, k); a read-only view."""
        return np.asarray(np.broadcast_to(self.stored_covs, (*self.means.shape, self.n_dims)), dtype=np.float64)

    # ------------------------------------------------------------------ factored once

    @cached_property
    def _correlation_eigenvalues(self) -> FloatArray:
        """The ascending eigenvalues (n or 1, k) of each correlation matrix; 1 for an entry without variance."""
        covs = self.stored_covs
        return np.concatenate([np.linalg.eigvalsh(correlations(covs[part])) for part in split_stack(covs)])

    @cached_property
    def condition_number(self) -> FloatArray:
        """The condition number of each correlation matrix, (n or 1,); inf where Σ_X is singular."""
        if self.is_diagonal:
            return np.where((self.stored_variances > 0).all(axis=1), 1.0, np.inf)
        values = self._correlation_eigenvalues
        singular = values[:, 0] <= RANK_TOLERANCE * values[:, -1]
        singular |= (self.stored_variances == 0).any(axis=1)
        with np.errstate(divide="ignore"):
            return np.where(singular, np.inf, values[:, -1] / np.maximum(values[:, 0], 0))

    @cached_property
    def cholesky(self) -> FloatArray:
        """The lower Cholesky factors of the covariances, (n or 1, k, k); zero matrices for singular ones."""
        full_rank = np.isfinite(self.condition_number)
        factors = np.zeros_like(self.stored_covs)
        if full_rank.any():
            # Factor the correlation matrix: scaling each entry to unit variance keeps graded covariances exact.
            chosen = self.stored_covs[full_rank]
            std = np.sqrt(np.diagonal(chosen, axis1=1, axis2=2))
            factors[full_rank] = np.linalg.cholesky(correlations(chosen)) * std[:, :, None]
        return _make_read_only(factors)

    def embedding(self) -> FloatArray:
        """Return points (n, d) whose Euclidean distance is that of (μ, Σ^{1/2}); what all labels share is left out."""
        if self.is_shared:
            return self.means
        if self.is_diagonal:
            return np.concatenate([self.means, np.sqrt(self.stored_variances)], axis=1)
        roots = square_root(self.stored_covs)
        i, j = np.triu_indices(self.n_dims)
        upper = roots[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
        return np.concatenate([self.means, upper], axis=1)

    # ------------------------------------------------------------------ estimated from samples

    #: What the laws were estimated from; None where they were stated.
    fitted: FittedLaws | None = None

    @property
    def counts(self) -> FloatArray:
        """The number of rows behind each label's law, (n,), for laws from :meth:`fit`."""
        return self._require_fitted.counts

    def checks(self) -> LawChecks:
        """Whether the rows behind these laws follow them, label by label, for laws from :meth:`fit`.

        Normality of each label's rows, and spread of held-out rows beside the promised one.

        Returns:
            The checks; ``holds`` is the verdict, ``statements`` are its reasons in words, ``table()`` is one row per
            label.

        >>> import numpy as np
        >>> import shoal
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(["a", "b"], 500)
        >>> heavy = rng.standard_t(2, size=(1000, 2)) + (labels == "b")[:, None]
        >>> shoal.GaussianClasses.fit(heavy, labels).checks().verdict
        ('not gaussian', 'not gaussian')
        """
        return self._require_fitted.checks

    def estimation_basis(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return, for these labels, rows behind the mean, degrees of freedom of the covariance, covariance of a row."""
        if not set(labels) <= set(self.places):
            raise InputError("training must hold the laws of every label of the mechanism")
        chosen = np.array([self.places[label] for label in labels], dtype=np.intp)
        return self._require_fitted.counts[chosen], self._require_fitted.degrees[chosen], self.covs[chosen]

    @property
    def _require_fitted(self) -> FittedLaws:
        """What the laws were estimated from; an InputError where they were stated."""
        if self.fitted is None:
            raise InputError("these laws were stated, not estimated from samples: use GaussianClasses.fit")
        return self.fitted

    # ------------------------------------------------------------------ known up to rounding

    #: Entrywise bounds on the errors of covariances, (n or 1, k, k), and means, (n, k); None where these are exact.
    errors: tuple[FloatArray, FloatArray] | None = None

    def with_errors(self, cov_error: FloatArray, mean_error: FloatArray) -> GaussianClasses:
        """Return the same laws, known only up to these entrywise errors on top of earlier ones; δ then covers them.

        ``cov_error`` is (n, k, k), or (1, k, k) where all labels share one covariance and its one error.
        """
        n, k = self.means.shape
        cov_error = np.broadcast_to(cov_error, (np.shape(cov_error)[0] if np.ndim(cov_error) == 3 else 1, k, k))
        mean_error = np.broadcast_to(mean_error, (n, k))
        if self.errors is not None:
            cov_error, mean_error = cov_error + self.errors[0], mean_error + self.errors[1]
        result = copy.copy(self)
        result.__dict__.pop("relative_errors", None)
        if cov_error.any() or mean_error.any():
            result.errors = _make_read_only(cov_error), _make_read_only(mean_error)
        return result

    @cached_property
    def relative_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Bounds ‖ |L⁻¹| E |L⁻ᵀ| ‖ and ‖ |L⁻¹| e ‖ on the errors relative to each law, (n,) each; None where exact.

        Infinite for a law that is known up to an error only and has no width, or hardly any, in some direction: what
        the error is worth there cannot be said. Entries without variance and without error do not count.
        """
        if self.errors is None:
            return None
        n, k = self.means.shape
        cov_error, mean_error = np.broadcast_to(self.errors[0], (n, k, k)), self.errors[1]
        still = np.broadcast_to(self.stored_variances, (n, k)) == 0
        touched = still & (mean_error + cov_error.sum(axis=2) > 0)
        factors, condition = np.broadcast_to(self.cholesky, (n, k, k)), np.broadcast_to(self.condition_number, (n,))
        exact = ~(cov_error.any(axis=(1, 2)) | mean_error.any(axis=1))
        unknown = ~(np.isfinite(cov_error).all(axis=(1, 2)) & np.isfinite(mean_error).all(axis=1))
        cov_error, mean_error = (np.where(np.isfinite(e), e, 0.0) for e in (cov_error, mean_error))
        whole = (condition * k * EPS < FACTORED) & ~unknown
        inverse = np.broadcast_to(np.eye(k), (n, k, k)).copy()
        if whole.any():
            inverse[whole] = np.abs(np.linalg.inv(factors[whole]))
        narrow = ~whole & ~exact & ~unknown & ~touched.any(axis=1)
        for i in np.flatnonzero(narrow & still.any(axis=1)):
            moving = np.flatnonzero(~still[i])
            part = self.restrict(np.array([i]), moving)
            if len(moving) and part.condition_number[0] * k * EPS < FACTORED:
                inverse[i] = 0.0
                inverse[np.ix_([i], moving, moving)] = np.abs(np.linalg.inv(part.cholesky))
                whole = whole | (np.arange(n) == i)
        spread = inverse @ cov_error @ np.swapaxes(inverse, 1, 2)
        shift = (inverse @ mean_error[:, :, None])[:, :, 0]
        # The factors themselves are known to a relative condition · k ε only.
        relative = np.where(whole, (1 + 2 * FACTORED) * spread.sum(axis=2).max(axis=1), np.inf)
        moved = np.where(whole, (1 + 2 * FACTORED) * np.linalg.norm(shift, axis=1), np.inf)
        return np.where(exact, 0.0, relative), np.where(exact, 0.0, moved)

    def restrict(self, rows: IndexArray, entries: IndexArray) -> GaussianClasses:
        """Return the laws of some entries for the labels in ``rows``, as stored; a shared covariance stays shared."""
        kept = np.zeros(1, dtype=np.intp) if self.is_shared else rows
        if self.is_diagonal:
            stored = self.stored_variances[np.ix_(kept, entries)]
        else:
            stored = self.stored_covs[np.ix_(kept, entries, entries)]
        return self._build_same_kind(self.means[np.ix_(rows, entries)], stored, [self.labels[i] for i in rows])

    def _build_same_kind(self, means: FloatArray, stored: FloatArray, labels: Sequence[str]) -> GaussianClasses:
        """Return laws of the same kind, diagonal or full, shared or not, from what is stored of them."""
        build = GaussianClasses.diagonal if self.is_diagonal else GaussianClasses
        return build(means, stored[0] if self.is_shared else stored, labels)

    # ------------------------------------------------------------------ derived families

    def take(self, positions: Any) -> GaussianClasses:
        """Return the laws of the labels at the given positions, in that order.

        Returns:
            The family of these labels, with the rounding bounds of their laws.

        >>> import shoal
        >>> classes = shoal.GaussianClasses([[0.0], [1.0], [2.0]], [[1.0]], labels=["a", "b", "c"])
        >>> classes.take([2, 0]).labels
        ('c', 'a')
        """
        positions = np.asarray(positions)
        if positions.dtype.kind not in "iu" or positions.ndim != 1 or len(positions) == 0:
            raise InputError("positions must be a list of whole numbers, at least one")
        if positions.min() < 0 or positions.max() >= self.n_classes:
            raise InputError(f"positions must lie between 0 and {self.n_classes - 1}")
        result = self.restrict(positions, np.arange(self.n_dims))
        if self.fitted is not None:
            result.fitted = self.fitted.take(positions)
        if self.errors is None:
            return result
        cov_error, mean_error = self.errors
        return result.with_errors(cov_error if len(cov_error) == 1 else cov_error[positions], mean_error[positions])

    def condition(self, observed: Any, at: Any) -> GaussianClasses:
        """Return the laws of the other entries given these: a Gaussian-process forecast from any laws.

        With o the entries at ``at`` and f all others,

            μ = μ_f + Σ_fo Σ_o⁻¹ (x − μ_o),     Σ = Σ_f − Σ_fo Σ_o⁻¹ Σ_of

        (Rasmussen & Williams 2006, equation 2.19), by a Cholesky factor of Σ_o, never by an inverse.

        Args:
            observed: x, (n, m) with a row for each label, or (m,) for all of them.
            at: the m positions of the observed entries, each once, not all entries.

        Returns:
            The family of the other entries, in their order, with the same labels.

        >>> import shoal
        >>> classes = shoal.GaussianClasses([[0.0, 0.0]], [[1.0, 0.8], [0.8, 1.0]], labels=["a"])
        >>> after = classes.condition([2.0], at=[0])
        >>> after.means.round(12).tolist(), after.covs.round(12).tolist()
        ([[1.6]], [[[0.36]]])
        """
        places = np.asarray(at)
        k = self.n_dims
        if places.dtype.kind not in "iu" or places.ndim != 1 or not 0 < len(places) < k:
            raise InputError(f"at must hold between 1 and {k - 1} positions of entries, as whole numbers")
        if places.min() < 0 or places.max() >= k or len(np.unique(places)) != len(places):
            raise InputError(f"at must hold positions between 0 and {k - 1}, each once")
        values = validation.array(ndim=(1, 2), observed=observed)
        if values.shape not in ((len(places),), (self.n_classes, len(places))):
            raise InputError(f"observed must have shape ({len(places)},) or ({self.n_classes}, {len(places)})")
        others = np.setdiff1d(np.arange(k), places)
        covs = self.stored_covs
        seen, across = covs[:, places[:, None], places], covs[:, others[:, None], places]
        if not np.isfinite(self.restrict(np.arange(self.n_classes), places).condition_number).all():
            raise InputError(
                "at: some of these entries are fixed by the others, or do not vary; leave those out of what is observed"
            )
        factor = np.linalg.cholesky(seen)
        weighted = np.linalg.solve(factor, np.swapaxes(across, 1, 2))  # L⁻¹ Σ_of
        away = np.linalg.solve(
            factor, np.broadcast_to(values - self.means[:, places], (self.n_classes, len(places)))[:, :, None]
        )
        means = self.means[:, others] + (np.swapaxes(weighted, 1, 2) @ away)[:, :, 0]
        left = covs[:, others[:, None], others] - np.swapaxes(weighted, 1, 2) @ weighted
        left = 0.5 * (left + np.swapaxes(left, 1, 2))
        return GaussianClasses(means, left[0] if len(left) == 1 else left, self.labels)

    def with_noise(self, noise_cov: Any) -> GaussianClasses:
        """Return the laws after adding one independent Gaussian noise of mean zero, the same for every label.

        ``noise_cov`` is a (k, k) covariance, (k,) variances or one variance for all entries. What rounding takes off
        the sums is kept as ``errors`` of the result, and accounted for.

        Returns:
            The family N(μ_X, Σ_X + noise covariance).

        >>> import shoal
        >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]])
        >>> classes.with_noise(3.0).covs[0].tolist()
        [[4.0]]
        """
        noise = validation.array(ndim=(0, 1, 2), noise_cov=noise_cov)
        k = self.n_dims
        if noise.ndim and noise.shape not in ((k,), (k, k)):
            raise InputError(f"noise_cov must be a number, ({k},) or ({k}, {k}), got shape {noise.shape}")
        if noise.ndim < 2 and (noise < 0).any():
            raise InputError("noise_cov must not hold negative variances")
        if noise.ndim == 2:
            try:
                noise = GaussianClasses(np.zeros((1, k)), noise).stored_covs[0]
            except InputError as error:
                raise InputError(str(error).replace("covs", "noise_cov")) from None
        if noise.ndim < 2 and self.is_diagonal:
            variances, lost = sum_with_error(self.stored_variances, np.broadcast_to(noise, self.stored_variances.shape))
            result = self._build_same_kind(self.means, variances, self.labels)
            cov_error = lost[:, :, None] * np.eye(k)
        else:
            full = noise if noise.ndim == 2 else np.diag(np.broadcast_to(noise, (k,)))
            covs, cov_error = sum_with_error(self.stored_covs, np.broadcast_to(full, self.stored_covs.shape))
            result = GaussianClasses(self.means, covs[0] if self.is_shared else covs, self.labels)
        result.errors = self.errors
        return result.with_errors(cov_error, np.zeros(self.means.shape))

    # ------------------------------------------------------------------ checks

    def _check_definite(self) -> None:
        """Raise InputError where a stored covariance is not positive semidefinite."""
        variances = self.stored_variances
        if (variances < 0).any():
            raise InputError("covs must be positive semidefinite: a variance on the diagonal is negative")
        lonely = (variances == 0)[:, :, None] & (self.stored_covs != 0)
        if lonely.any():
            raise InputError(
                "covs must be positive semidefinite: an entry without variance has a covariance with another"
            )
        values = self._correlation_eigenvalues
        negative = int((values[:, 0] < -indefinite_tolerance(self.n_dims) * values[:, -1]).sum())
        if negative:
            raise InputError(
                f"covs must be positive semidefinite: {negative} of {len(values)} matrices have a negative eigenvalue"
            )

    def __repr__(self) -> str:
        kind = ("shared " if self.is_shared else "") + ("diagonal" if self.is_diagonal else "full")
        return f"GaussianClasses({self.n_classes} labels, {self.n_dims} entries, {kind} covariance)"


def _checked_shape(means: FloatArray) -> tuple[int, int]:
    """Return (n, k) of the means; raise InputError where there are no labels or no entries."""
    n, k = means.shape
    if n == 0 or k == 0:
        raise InputError(f"means must have at least one row and one column, got shape {means.shape}")
    return n, k


def _make_read_only(values: NDArray[np.float64]) -> FloatArray:
    """Return the array, contiguous and no longer writable."""
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values


def _symmetrize(covs: FloatArray) -> FloatArray:
    """Return covariances (n, k, k) made symmetric; raise InputError where they differ by more than rounding."""
    turned = np.swapaxes(covs, 1, 2)
    gap = np.concatenate([np.abs(covs[part] - turned[part]).max(axis=(1, 2)) for part in split_stack(covs)])
    skewed = int((gap > ASYMMETRY * np.abs(covs).max(axis=(1, 2))).sum())
    if skewed:
        raise InputError(f"covs must be symmetric: {skewed} of {len(covs)} matrices are not")
    return 0.5 * covs + 0.5 * turned if gap.any() else covs
