"""The learned cost model: how many times longer than its prior a cell takes, by boosted trees."""

from typing import Any

import numpy as np


class CostModel:
    """Predicts the times of cells (variant, mask) from those that were measured.

    The logarithm of time over `prior` is the mean of a variant, drawn towards the mean of all where
    few of its cells were measured, plus what boosted trees find in the features.

    Args:
        features: float[variants, masks, n].
        prior: float[variants, masks]: an expected time, such as the roofline's bound; ones where
            nothing is known.
        seed: of the trees.

    Raises:
        ImportError: without scikit-learn.
    """

    #: Cells from which trees are fitted, and the weight of the mean of all in that of a variant.
    LEAST, PULL = 12, 0.5

    def __init__(self, features: np.ndarray, prior: np.ndarray, seed: int = 0):
        self._features, self._prior, self._trees = features, np.log(prior), _trees(seed)

    def predict(self, measured: np.ndarray) -> np.ndarray:
        """float[variants, masks]: the time of every cell, those of `measured` (NaN: unknown) as
        they are.
        """
        known = np.isfinite(measured)
        residual = np.where(known, np.log(np.where(known, measured, 1.0)) - self._prior, 0.0)
        counts = known.sum(1)
        every = residual.sum() / max(counts.sum(), 1)
        means = (residual.sum(1) + self.PULL * every) / (counts + self.PULL)
        found = self._prior + means[:, None]
        if counts.sum() >= self.LEAST:
            rest = (residual - means[:, None])[known]
            flat = self._features.reshape(-1, self._features.shape[-1])
            with _one_thread():  # so few cells take longer on several
                self._trees.fit(self._features[known], rest)
                found = found + self._trees.predict(flat).reshape(found.shape)
        return np.where(known, measured, np.exp(found))


def _one_thread() -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _trees(seed: int) -> Any:
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ModuleNotFoundError as error:
        raise ImportError(
            "the learned cost model needs scikit-learn: pip install 'jaxsparse[tune]'",
            name=error.name,
        ) from error
    make: Any = HistGradientBoostingRegressor  # its inferred types leave out what it takes
    return make(
        max_iter=40, min_samples_leaf=3, learning_rate=0.2, early_stopping=False, random_state=seed
    )
