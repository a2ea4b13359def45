"""The paper's twelve claims: the checks behind them, their evaluation, and the readings they hang on."""
