"""Zero-mean ARMA models of many series, x_t = Σ ar_i x_{t−i} + e_t + Σ ma_j e_{t−j}: likelihood, fits, forecasts."""
