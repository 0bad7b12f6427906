"""From smart-meter files to the Gaussian laws of household forecasts."""
