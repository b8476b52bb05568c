"""The benchmark: scenarios, runner, metrics, results and report."""
